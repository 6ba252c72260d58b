"""Parquet files: three columns, found by their names or by being the only three."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nscaching.errors import UserError
from nscaching.graph.columns import choose_columns, table_triples
from nscaching.graph.files import no_triples, unreadable
from nscaching.graph.reading import Reading


def read_parquet(path: Path) -> Reading:
    """Read head, relation and tail; other columns are ignored when the three have names."""
    try:
        with path.open("rb") as file:
            schema = pq.read_schema(file)
            names = choose_columns(schema.names, path)
            file.seek(0)
            table = pq.read_table(file, columns=names, use_threads=True)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} is not a whole Parquet file ({reason}); write it again."
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from error
        raise UserError(f"{path} is damaged ({error}); write it again.") from error
    if len(table) == 0:
        raise no_triples(path)
    return Reading(table_triples(table, names, path))
