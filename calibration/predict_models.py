"""Shapes of published models beyond the catalogue's, and names as people write them.

Names are compared by letters and digits alone, without organisation and without words that do not change the
shape (Instruct, FP8, a date), so `meta-llama/Meta-Llama-3.1-8B-Instruct-FP8`, `llama3.1_8b` and `Llama-3.1-8B`
are one model.
"""

from __future__ import annotations

import re
from pathlib import Path

from calibration.config_json import from_config_json
from calibration.models import MODELS, ModelShape
from traces.errors import InputError, nearest

# Facts of the published config.json files.
PUBLISHED: tuple[ModelShape, ...] = (
    ModelShape("Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, 40960, tied_embeddings=True),
    ModelShape("Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, 151936, 40960, tied_embeddings=True),
    ModelShape("Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 40960, tied_embeddings=True),
    ModelShape("Qwen3-235B-A22B", 94, 4096, 64, 4, 128, 1536, 151936, 40960, experts=128, top_k=8),
    ModelShape("Qwen3-Coder-480B-A35B", 62, 6144, 96, 8, 128, 2560, 151936, 262144, experts=160, top_k=8),
    ModelShape("Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936, 32768, tied_embeddings=True),
    ModelShape("Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, 151936, 32768, tied_embeddings=True),
    ModelShape("Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064, 32768),
    ModelShape("Qwen2.5-14B", 48, 5120, 40, 8, 128, 13824, 152064, 32768),
    ModelShape("Qwen2.5-32B", 64, 5120, 40, 8, 128, 27648, 152064, 32768),
    ModelShape("Qwen2.5-72B", 80, 8192, 64, 8, 128, 29568, 152064, 32768),
    ModelShape("Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256, 8192),
    ModelShape("Llama-3-70B", 80, 8192, 64, 8, 128, 28672, 128256, 8192),
    ModelShape("Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256, 131072),
    ModelShape("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 131072, tied_embeddings=True),
    ModelShape("Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128256, 131072, tied_embeddings=True),
    ModelShape("Llama-3.3-70B", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
    ModelShape("Llama-2-7B", 32, 4096, 32, 32, 128, 11008, 32000, 4096),
    ModelShape("Llama-2-13B", 40, 5120, 40, 40, 128, 13824, 32000, 4096),
    ModelShape("Llama-2-70B", 80, 8192, 64, 8, 128, 28672, 32000, 4096),
    ModelShape("CodeLlama-34B", 48, 8192, 64, 8, 128, 22016, 32000, 16384),
    ModelShape("Llama-4-Scout-17B-16E", 48, 5120, 40, 8, 128, 8192, 202048, 131072, experts=16, top_k=1,
               shared_intermediate=8192),
    ModelShape("Mistral-7B", 32, 4096, 32, 8, 128, 14336, 32768, 32768),
    ModelShape("Mistral-Nemo", 40, 5120, 32, 8, 128, 14336, 131072, 131072),
    ModelShape("Mistral-Small-24B", 40, 5120, 32, 8, 128, 32768, 131072, 32768),
    ModelShape("Mixtral-8x7B", 32, 4096, 32, 8, 128, 14336, 32000, 32768, experts=8, top_k=2),
    ModelShape("Mixtral-8x22B", 56, 6144, 48, 8, 128, 16384, 32768, 65536, experts=8, top_k=2),
    ModelShape("Yi-34B", 60, 7168, 56, 8, 128, 20480, 64000, 4096),
    ModelShape("Phi-4", 40, 5120, 40, 10, 128, 17920, 100352, 16384),
    ModelShape("gpt-oss-120b", 36, 2880, 64, 8, 64, 2880, 201088, 131072, experts=128, top_k=4,
               precision="mxfp4"),
)  # fmt: skip
# Other names of a shape: fine-tunes, and names without a size where there is one size.
_ALIASES = {
    "DeepSeek-R1-Distill-Llama-8B": "Llama-3.1-8B",
    "DeepSeek-R1-Distill-Llama-70B": "Llama-3.3-70B",
    "DeepSeek-R1-Distill-Qwen-1.5B": "Qwen2.5-1.5B",
    "DeepSeek-R1-Distill-Qwen-7B": "Qwen2.5-7B",
    "DeepSeek-R1-Distill-Qwen-14B": "Qwen2.5-14B",
    "DeepSeek-R1-Distill-Qwen-32B": "Qwen2.5-32B",
    "QwQ-32B": "Qwen2.5-32B",
    "Qwen2.5-Coder-7B": "Qwen2.5-7B",
    "Qwen2.5-Coder-32B": "Qwen2.5-32B",
    "Qwen3-Coder-30B-A3B": "Qwen3-30B-A3B",
    "Mistral-Nemo-12B": "Mistral-Nemo",
    "Llama-4-Scout": "Llama-4-Scout-17B-16E",
}
_IDLE_WORDS = re.compile(
    r"^(meta|instruct|base|chat|hf|it|fp8|fp16|bf16|kv|dynamic|static|block|quantized|modelopt|thinking|w8a8"
    r"|nvidia|redhatai|neuralmagic|v0|v\d(\.\d)*|2[3-9]\d\d)$"
)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def plain(name: str) -> str:
    """Return what of a name says the shape, letters and digits alone.

    >>> plain("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic")
    'llama318b'
    """
    words = re.split(r"[-_\s]+", name.strip().rstrip("/").replace("\\", "/").rsplit("/", 1)[-1].lower())
    return _letters("".join(w for w in words if not _IDLE_WORDS.match(w)))


def shape(name: str) -> ModelShape:
    """Return the shape of a model by any of its names, or of a `config.json` (or its folder) by path.

    Raises InputError with the nearest name.
    """
    path = Path(name)
    if path.suffix == ".json" or (path.is_dir() and (path / "config.json").is_file()):
        return from_config_json(path / "config.json" if path.is_dir() else path)[0]
    known = {m.name: m for m in (*PUBLISHED, *MODELS.values())}
    names = {plain(key): m for key, m in known.items()}
    names |= {plain(alias): known[key] for alias, key in _ALIASES.items()}
    found = names.get(plain(name))
    if found is None:
        raise InputError(nearest(name, {*known, *_ALIASES}, what="model"))
    return found
