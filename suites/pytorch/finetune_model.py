"""Full, LoRA and QLoRA models as users of transformers, peft and bitsandbytes build them."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import peft
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

import decoder
from finetune_cases import Case
from finetune_data import token_file
from flags import UsageError

JOINT = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
PROJECTIONS = tuple(name for parts in JOINT for name in parts)
ADAPTER_SEED = 1 << 32  # adapters draw from another sequence than the base's parameters
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def versions() -> dict[str, str]:
    """Libraries, for the run's row; absent where one is not installed."""
    found = {}
    for name in ("transformers", "peft", "bitsandbytes"):
        with suppress(PackageNotFoundError):
            found[f"{name}_version"] = version(name)
    return found


def vocabulary_of(case: Case) -> int:
    """0: the size's own. tiny takes that of its data."""
    if not case.vocabulary and case.size == "tiny" and case.data is not None:
        return int(token_file.load(case.data).attributes["vocabulary"])
    return case.vocabulary


def base_dtype(case: Case) -> torch.dtype:
    """fp32 master weights where they are trained, else the dtype of compute."""
    return torch.float32 if case.method == "full" else DTYPES[case.precision]


def base_model(case: Case, device: torch.device) -> tuple[nn.Module, int | None]:
    """The pretrained model, or seeded random weights with their hash."""
    dtype = base_dtype(case)
    if case.model is not None:
        model = AutoModelForCausalLM.from_pretrained(
            case.model, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
        model.config.use_cache = False
        return model.train(), None
    shape = decoder.shape_of(case.size, vocabulary_of(case))
    parameters = decoder.initial_parameters(shape, case.seed, device, dtype)
    return (decoder.build(shape, parameters, "sdpa"),
            decoder.hash_of(list(parameters.values())))


def build(case: Case, device: torch.device) -> tuple[nn.Module, int | None]:
    """The model that is trained, on the device, and the hash of seeded initial weights."""
    model, initial_hash = base_model(case, device)
    if case.method == "qlora":
        quantize(model, DTYPES[case.precision], case.nf4_double_quant)
    model.to(device)
    if case.method == "qlora" and case.qlora_upcast:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if case.adapts:
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=case.lora_rank,
            lora_alpha=case.lora_alpha,
            lora_dropout=case.lora_dropout,
            bias="none",
            target_modules=list(PROJECTIONS),
            task_type="CAUSAL_LM",
        ))
        seed_adapters(model, case.seed)
    if case.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if case.compiled:
        torch._dynamo.reset()  # another case's code would count against the limit of recompiling
        for layer in decoder_layers(model):
            layer.compile(dynamic=True)
    return model, initial_hash


@torch.no_grad()
def seed_adapters(model: nn.Module, seed: int) -> None:
    """trainsuite's initial values: deviation 1 / sqrt(3 in) as peft's, from its counter hash, so
    that both start equal; of a layer's q, k, v and gate, up one matrix was drawn. B stays 0."""
    for number, layer in enumerate(decoder_layers(model)):
        here = {name.rpartition(".")[2]: module for name, module in layer.named_modules()
                if hasattr(module, "lora_A")}
        for place, parts in enumerate(JOINT):
            matrices = [here[part].lora_A["default"].weight for part in parts]
            rank, width = matrices[0].shape
            index = 2 * (len(JOINT) * number + place)  # A and B in turn
            drawn = torch.ops.trainsuite.initial_parameter(
                [len(parts) * rank, width], seed + ADAPTER_SEED, index, 1 / math.sqrt(3.0 * width),
                0.0, matrices[0].device,
            )
            for matrix, values in zip(matrices, drawn.split(rank), strict=True):
                matrix.copy_(values)


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The blocks, below peft's wrappers or not."""
    return next(module for name, module in model.named_modules()
                if name.rpartition(".")[2] == "layers" and isinstance(module, nn.ModuleList))


def quantize(model: nn.Module, compute: torch.dtype, nested: bool) -> None:
    """Replaces every linear layer but the head by bitsandbytes' NF4 (block 64; scales fp32, or
    quantized where `nested`), as transformers' BitsAndBytesConfig does; the codes are made when the
    model goes to its device."""
    import bitsandbytes as bnb  # only QLoRA needs it

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.Linear) or name == "lm_head":
                continue
            with torch.device("meta"):
                new = bnb.nn.Linear4bit(
                    child.in_features, child.out_features, bias=child.bias is not None,
                    compute_dtype=compute, compress_statistics=nested, quant_type="nf4",
                )
            new.weight = bnb.nn.Params4bit(
                child.weight.data, requires_grad=False, blocksize=64,
                compress_statistics=nested, quant_type="nf4", module=new,
            )
            new.bias = child.bias
            # Else evaluation on some CPUs repacks the codes for inference, and later training
            # passes through them without gradients (bitsandbytes 0.50.2).
            new.support_avx512bf16_for_cpu = False
            setattr(parent, name, new)
    model.is_loaded_in_4bit = True  # peft looks here
    model.requires_grad_(False)


def check(case: Case) -> None:
    """Raises UsageError for a model folder that transformers cannot read."""
    if case.model is None:
        return
    if not os.path.isfile(os.path.join(case.model, "config.json")):
        raise UsageError(f"--model {case.model}: no config.json there; name a model's folder")
    try:
        AutoConfig.from_pretrained(case.model, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"--model {case.model}: {str(error).splitlines()[0]}") from error


def bytes_by_dtype(model: nn.Module) -> dict[str, int]:
    """weight_bytes_<dtype>: each parameter once; nf4 is codes and scales."""
    found: dict[str, int] = {}
    for parameter in model.parameters():
        name, count = str(parameter.dtype).removeprefix("torch."), parameter.nbytes
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            name, count = "nf4", count + state.absmax.nbytes
            if state.nested:
                count += (state.state2.absmax.nbytes + state.state2.code.nbytes
                          + state.offset.nbytes)
        found[f"weight_bytes_{name}"] = found.get(f"weight_bytes_{name}", 0) + count
    return found


def parameter_count(model: nn.Module) -> int:
    """Elements of all parameters; two to a byte of NF4."""
    return sum(
        parameter.quant_state.shape.numel()
        if getattr(parameter, "quant_state", None) is not None else parameter.numel()
        for parameter in model.parameters()
    )


def trainable(model: nn.Module) -> list[Tensor]:
    """What the optimizer gets."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
