"""BERT as the engine's network: the layers of transformers' `BertForMaskedLM`, attention over the engine's KV cache.

Post-norm layers, learned absolute positions, a head with its own transform. Only attention is run here, because only
attention sees the cache; embeddings, projections, MLP and head are transformers' own modules under their own names.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM

from blockserve.execution.model import LayerCache, Shape


class BertNetwork(nn.Module):
    """Token ids at positions → hidden states (`forward`) → logits (`head`), called as `BidirectionalTransformer`.

    Parameters are named as in a `BertForMaskedLM` checkpoint. Whether the head shares the embedding's weight is for
    ``config.tie_word_embeddings`` to say, and for who loads a checkpoint.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        model = BertForMaskedLM(config)
        self.bert, self.cls = model.bert, model.cls
        # The engine states every position, and all segments are 0. The head's bias is kept once, in its decoder.
        del self.bert.embeddings.position_ids, self.bert.embeddings.token_type_ids, self.cls.predictions.bias
        heads = config.num_attention_heads
        self.config = Shape(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=heads,
            intermediate_size=config.intermediate_size,
            head_dim=config.hidden_size // heads,
        )

    @property
    def embed(self) -> nn.Embedding:
        """The token embedding."""
        return self.bert.embeddings.word_embeddings

    def forward(
        self, ids: Tensor, positions: Tensor, visible: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """Hidden states [rows, columns, d] of ``ids`` at ``positions`` (both int [rows, columns]).

        ``visible`` [rows, keys] is true where a key may be attended to, ``None`` shows every key. With a ``cache`` the
        keys are what it returns, otherwise those of ``ids``.
        """
        x = self.bert.embeddings(ids, token_type_ids=ids.new_zeros(ids.shape), position_ids=positions)
        mask = None if visible is None else visible[:, None, None, :]
        for index, layer in enumerate(self.bert.encoder.layer):
            x = layer.attention.output(self._attend(layer.attention.self, index, x, mask, cache), x)
            x = layer.output(layer.intermediate(x), x)
        return x

    def _attend(self, attention: nn.Module, layer: int, x: Tensor, mask: Tensor | None, cache: LayerCache | None):
        """What attention reads for ``x`` [rows, columns, d] → the same shape."""
        split = (*x.shape[:2], self.config.num_heads, self.config.head_dim)
        query, key, value = (
            project(x).view(split).transpose(1, 2) for project in (attention.query, attention.key, attention.value)
        )
        if cache is not None:
            key, value = cache.update(layer, key, value)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)

    def head(self, hidden: Tensor) -> Tensor:
        """Raw logits [..., vocabulary] of hidden states [..., d]."""
        return self.cls.predictions(hidden)
