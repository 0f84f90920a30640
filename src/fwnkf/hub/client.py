"""huggingface_hub, imported where it is used, with errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigError, DataError, shown
from ..extras import need

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


class UnreachableError(DataError):
    """The hub gave no answer at all."""


def client() -> Any:
    """The package huggingface_hub. Raises ConfigError naming the extra that installs it."""
    for module in ("errors", "constants"):  # attributes of the package once they are imported
        need(f"huggingface_hub.{module}", extra="hub")
    return need("huggingface_hub", extra="hub")


def check_repository(repo_id: str) -> None:
    """Raise ConfigError unless this is ``owner/name``; a bare name would be that of anybody who registers it first."""
    if not REPOSITORY.fullmatch(repo_id):
        raise ConfigError(f"{shown(repo_id)} is no repository of a hub: write owner/name, such as 'ada/my-filter'")


@contextmanager
def readable(repo_id: str, revision: str | None, *, doing: str) -> Iterator[None]:
    """Errors of the hub as DataError: what was asked for, what the hub said, what to do."""
    hub = client()
    errors, where = hub.errors, f"{hub.constants.ENDPOINT}/{repo_id}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise DataError(
            f"{doing} {where}: its owner gives access on request; ask for it on that page, then log in with "
            "`hf auth login` or pass token=…"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(
            f"{doing} {where}: there is no such repository, or it is private; check owner and name, and for a private "
            "one log in with `hf auth login` or pass token=…"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DataError(
            f"{doing} {where}: it has no revision {shown(revision)}; give a branch, a tag or a commit of it"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise DataError(
            f"{doing} {where}: its files are not in the cache, and the hub was not asked (local_files_only=True or "
            "HF_HUB_OFFLINE); load it once with a connection, with the same revision and cache_dir"
        ) from error
    except errors.HfHubHTTPError as error:
        raise DataError(f"{doing} {where}: the hub said: {_first_line(error)}") from error
    except (errors.HTTPError, ConnectionError, TimeoutError) as error:  # those of httpx are no OSError
        raise UnreachableError(
            f"{doing} {where}: the hub cannot be reached ({_first_line(error)}); check the connection and HF_ENDPOINT"
        ) from error
    except (errors.EntryNotFoundError, ValueError, OSError) as error:  # what it sent, or the disk
        raise DataError(f"{doing} {where}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
