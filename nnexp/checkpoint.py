"""Checkpoints and weights: tensors and plain numbers with a checksum, written whole or not at all.

`torch.load(path, weights_only=True)` reads them, so that opening one executes nothing.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

from nnexp.errors import RecordError
from nnexp.record import write_atomically

LAST, PREVIOUS, MODEL = "last.ckpt", "previous.ckpt", "model.pt"


def digest(content: Any) -> str:
    """Checksum of nested dictionaries, lists, tensors and plain values."""
    result = hashlib.sha256()
    _feed(content, result)
    return result.hexdigest()


def _feed(node: Any, result: Any) -> None:
    if isinstance(node, dict):
        for key in node:
            result.update(f"key {key!r}".encode())
            _feed(node[key], result)
    elif isinstance(node, list | tuple):
        result.update(f"list {len(node)}".encode())
        for item in node:
            _feed(item, result)
    elif isinstance(node, torch.Tensor):
        result.update(f"tensor {node.dtype} {tuple(node.shape)}".encode())
        result.update(node.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    else:
        result.update(f"{type(node).__name__} {node!r}".encode())


def save(path: Path, content: dict[str, Any]) -> None:
    """Write atomically; the same content gives the same bytes under every name."""
    buffer = io.BytesIO()
    torch.save({**content, "checksum": digest(content)}, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any]:
    """Read and verify, onto the CPU. Raises RecordError where the file is damaged or holds more than plain data."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        checksum = content.pop("checksum")
    except Exception as error:
        raise RecordError(f"{path} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}") from None
    if checksum != digest(content):
        raise RecordError(f"{path} is damaged: its checksum does not match its content.")
    return dict(content)


def save_checkpoint(folder: Path, content: dict[str, Any]) -> None:
    """Add a checkpoint and keep the one before; older ones go."""
    last = folder / LAST
    if last.exists():
        os.replace(last, folder / PREVIOUS)
    save(last, content)


def load_checkpoint(folder: Path, fingerprint: str) -> dict[str, Any] | None:
    """The newest checkpoint of this job that is whole, or None."""
    for name in (LAST, PREVIOUS):
        try:
            content = load(folder / name)
        except RecordError:
            continue
        if content.get("fingerprint") == fingerprint:
            return content
    return None
