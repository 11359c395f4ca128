#!/usr/bin/env python3
"""Result files, schema 1 (docs/schema.md): the only reader and writer in Python.

Put this folder on sys.path, then `import results`.
"""

from results_records import (SCHEMA, SCHEMA_VERSION, CaseRecord, HostIdentity, RankIdentity,
                             RankRecord, RankSeries, ResultError, RunRecord)
from results_writer import ResultWriter, check_creatable, default_path

__all__ = ["SCHEMA", "SCHEMA_VERSION", "CaseRecord", "HostIdentity", "RankIdentity", "RankRecord",
           "RankSeries", "ResultError", "ResultWriter", "RunRecord", "check_creatable",
           "default_path"]
