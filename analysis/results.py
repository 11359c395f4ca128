#!/usr/bin/env python3
"""Result files, schema 1 (docs/schema.md): the only reader and writer in Python.

Put this folder on sys.path, then `import results`; or run it: `trainsuite-results summary FILE`.
"""

import sys

from results_checks import violations
from results_model import Case, Results, Run, Series
from results_reader import load
from results_records import (SCHEMA, SCHEMA_VERSION, CaseRecord, GpuIdentity, GpuLink, HostIdentity,
                             NetworkAdapter, RankIdentity, RankRecord, RankSeries, ResultError,
                             RunRecord)
from results_writer import ResultWriter, check_creatable, default_path, join_file

__all__ = ["SCHEMA", "SCHEMA_VERSION", "Case", "CaseRecord", "GpuIdentity", "GpuLink", "HostIdentity",
           "NetworkAdapter", "RankIdentity",
           "RankRecord", "RankSeries", "ResultError", "ResultWriter", "Results", "Run",
           "RunRecord", "Series", "check_creatable", "default_path", "join_file", "load",
           "violations"]

if __name__ == "__main__":
    from results_command import main

    sys.exit(main())
