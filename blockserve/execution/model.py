"""One bidirectional transformer for LLaDA, Dream and the Qwen-based diffusion models; what the engine asks of any.

RMSNorm, rotary positions (half-split), grouped-query attention without a causal mask, SwiGLU; optional qkv bias
and q/k norm. It knows nothing of blocks or schedules: it maps token ids at given positions to hidden states,
and, when handed a KV cache, lets the rows' queries attend to cached keys. BERT's network is in bert.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from blockserve.core import ConfigError


@dataclass(frozen=True)
class Shape:
    """Sizes of any network, for memory and manifests."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    head_dim: int

    shifted = False  # no field: only Dream predicts position j from j - 1


@dataclass(frozen=True)
class ModelConfig(Shape):
    """What `BidirectionalTransformer` is built from, read from a checkpoint's config by `blockserve.checkpoints`."""

    rope_theta: float
    rms_norm_eps: float
    max_positions: int
    qkv_bias: bool = False
    qk_norm: bool = False
    tied_head: bool = False
    shifted: bool = False  # Dream: logits[j - 1] predict position j

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads})")
        if self.head_dim % 2:
            raise ConfigError(f"head_dim must be even for rotary positions, got {self.head_dim}")


class LayerCache(Protocol):
    """What attention needs of a KV cache: hand in new keys and values, get all to attend to."""

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """``key``, ``value``: [rows, kv_heads, columns, head_dim] → keys and values to attend to."""
        ...


class RMSNorm(nn.Module):
    """Root-mean-square norm computed in float32 (or wider); the weight is applied after."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary_angles(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of shape [rows, 1, columns, head_dim] for integer ``positions`` [rows, columns]."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=wide) / head_dim
    angle = positions[..., None].to(wide) * theta**-exponent
    angle = torch.cat((angle, angle), dim=-1)[:, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply half-split rotary positions to ``x`` [rows, heads, columns, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query attention over every visible key; keys are cached after the rotation."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.heads, self.kv_heads, self.head_dim = (
            layer,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
        )
        d, bias = config.hidden_size, config.qkv_bias
        self.q_proj = nn.Linear(d, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(d, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, d, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor | None, cache: LayerCache | None) -> Tensor:
        rows, columns, _ = x.shape
        query = self.q_norm(self.q_proj(x).view(rows, columns, self.heads, self.head_dim)).transpose(1, 2)
        key = self.k_norm(self.k_proj(x).view(rows, columns, self.kv_heads, self.head_dim)).transpose(1, 2)
        value = self.v_proj(x).view(rows, columns, self.kv_heads, self.head_dim).transpose(1, 2)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if cache is not None:
            key, value = cache.update(self.layer, key, value)
        mask = None if visible is None else visible[:, None, None, :]
        grouped = self.heads != self.kv_heads
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)
        return self.o_proj(out.transpose(1, 2).reshape(rows, columns, -1))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, hidden = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(d, hidden, bias=False)
        self.up_proj = nn.Linear(d, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm attention and MLP, each with a residual."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config, layer)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor | None, cache: LayerCache | None) -> Tensor:
        x = x + self.attention(self.input_norm(x), cos, sin, visible, cache)
        return x + self.mlp(self.mlp_norm(x))


class BidirectionalTransformer(nn.Module):
    """Token ids at positions → hidden states (`forward`) → logits (`head`)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = None if config.tied_head else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(
        self, ids: Tensor, positions: Tensor, visible: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """Hidden states [rows, columns, d] of ``ids`` [rows, columns] at ``positions`` [rows, columns].

        ``visible`` [rows, keys] is true where a key may be attended to (all queries of a row alike, so a
        padded query sees the row's tokens and never yields NaN); ``None`` shows every key. With a ``cache``
        the keys are what it returns, otherwise those of ``ids``.
        """
        x = self.embed(ids)
        cos, sin = rotary_angles(positions, self.config.head_dim, self.config.rope_theta, x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, visible, cache)
        return self.norm(x)

    def head(self, hidden: Tensor) -> Tensor:
        """Raw logits [..., vocabulary] of hidden states [..., d]; never shifted."""
        return F.linear(hidden, self.embed.weight if self.lm_head is None else self.lm_head.weight)


class Network(Protocol):
    """What the executor asks of a network; `BidirectionalTransformer` says what goes in and out."""

    config: Shape
    embed: nn.Embedding  # its weight tells device and dtype

    def __call__(
        self, ids: Tensor, positions: Tensor, visible: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor: ...
    def head(self, hidden: Tensor) -> Tensor: ...


class Tokenizer(Protocol):
    """Text ↔ ids. A special token written out in a text becomes its id; `decode` leaves special tokens out."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class DiffusionModel:
    """A network with what is needed to decode with it. Built by `blockserve.checkpoints.load_model`.

    ``end_ids``: tokens that end an output (EOS, end of turn), none in a model without that habit; ``banned_ids``:
    never chosen (mask, ids the tokenizer does not know, BERT's special tokens); ``context``: the widest row in tokens;
    ``chat``: the tokenizer reads a prompt as a user's turn.
    """

    name: str
    network: Network
    tokenizer: Tokenizer | None
    mask_id: int
    end_ids: tuple[int, ...]
    pad_id: int
    context: int
    banned_ids: tuple[int, ...]
    chat: bool = False

    @property
    def shifted(self) -> bool:
        """Dream: logits at j - 1 predict position j."""
        return self.network.config.shifted

    @property
    def device(self) -> torch.device:
        return self.network.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.embed.weight.dtype
