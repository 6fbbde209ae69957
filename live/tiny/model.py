"""`python -m live make-model DIR`: a tiny Qwen3-shaped model and its tokenizer, trained on generated text.

Random weights answer constantly or at random, so that a test of outputs could not fail and speculation would have
nothing to accept. This one has learned the shape of the text: what it writes repeats, with variation.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live.tiny.text import document
from traces.draws import bits
from traces.errors import InputError

VOCABULARY = 512
MAX_POSITIONS = 2048
_WINDOW = 128
_DOCUMENTS = 1500


@dataclass(frozen=True)
class Made:
    """What was written: parameters of the model, the loss in nats a token when training ended (before it: ln 512)."""

    parameters: int
    steps: int
    loss: float


def make_model(directory: Path, *, steps: int = 500, seed: int = 0) -> Made:
    """Write a model in the format of `transformers`; deterministic on one machine, single-threaded.

    steps: training steps of 16 windows of 128 tokens (about 0.1 s each); 0 leaves the random weights, which answer
    neither constantly nor sensibly. Raises InputError without torch, transformers and tokenizers (vLLM brings them),
    and where `directory` exists.
    """
    if directory.exists():
        raise InputError(f"{directory}: exists already; give a new directory")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch, transformers = _needed("torch"), _needed("transformers")
    texts = [document(seed, i) for i in range(_DOCUMENTS)]
    tokenizer = _tokenizer(texts)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(seed)
        config = transformers.Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=MAX_POSITIONS,
            tie_word_embeddings=False,
            initializer_range=0.02 if steps else 0.35,
            eos_token_id=0,
            bos_token_id=None,
        )
        model = transformers.Qwen3ForCausalLM(config).to(torch.float32)
        loss = _train(torch, model, [t for text in texts for t in tokenizer.encode(text)], steps, seed)
    finally:
        torch.set_num_threads(threads)
    directory.mkdir(parents=True)
    tokenizer.save_pretrained(directory)
    model.save_pretrained(directory)
    return Made(sum(p.numel() for p in model.parameters()), steps, loss)


def _tokenizer(texts: list[str]) -> Any:
    parts = _needed("tokenizers")
    tokenizer = parts.Tokenizer(parts.models.BPE())
    tokenizer.pre_tokenizer = parts.pre_tokenizers.ByteLevel()
    tokenizer.decoder = parts.decoders.ByteLevel()
    trainer = parts.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<eos>"],
        initial_alphabet=sorted(parts.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = _needed("transformers").PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")


def _train(torch: Any, model: Any, stream: list[int], steps: int, seed: int) -> float:
    data = torch.tensor(stream)
    windows = len(stream) - _WINDOW - 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 2))
    loss = float("nan")
    model.train()
    for step in range(steps):
        starts = [bits(seed, "tiny window", step, row) % windows for row in range(16)]
        batch = torch.stack([data[s : s + _WINDOW] for s in starts])
        out = model(input_ids=batch, labels=batch)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        loss = float(out.loss.detach())
    model.eval()
    return loss


def _needed(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except ImportError as e:
        raise InputError(f"make-model needs {name}, which the vLLM environment has: {e}") from e
    if name == "tokenizers":
        for part in ("models", "pre_tokenizers", "decoders", "trainers"):
            importlib.import_module(f"tokenizers.{part}")
    return module
