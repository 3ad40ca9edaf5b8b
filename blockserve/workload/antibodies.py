"""Starts of antibody chains as prompts, for `antiberty`, a masked language model that nobody here trained.

    pip install 'blockserve[antibody]'

    import blockserve as bs
    from blockserve.workload.antibodies import antibodies
    run = bs.Engine("antiberty", slots=8, block_length=32).run(antibodies())

or on the command line

    python -m blockserve.workload.antibodies > antibodies.jsonl
    blockserve run --model antiberty --prompts antibodies.jsonl --block-length 32
    blockserve check-invariance --model antiberty --prompts antibodies.jsonl --block-length 32

A letter is an amino acid and a token. The model was trained on chains between ``[CLS]`` and ``[SEP]``; a prompt may
begin with ``[CLS]``, which stands for one token. These do not: a prompt is a stretch of a chain.
"""

from __future__ import annotations

import json

from blockserve.core import ConfigError, Request, check_int
from blockserve.workload.sources import Workload

LIMIT = 64  # with the prompt about as long as the variable part of a chain

# Human germline, by V gene: heavy chains (H), kappa (K) and lambda (L) light chains, cut at various lengths.
STARTS = {
    "IGHV3-23": "EVQLLESGGGLVQPGGSLRLSCAASGFTFS",
    "IGKV1-39": "DIQMTQSPSSLSASVGDRVTITC",
    "IGHV1-69": "QVQLVQSGAEVK",
    "IGLV2-14": "QSALTQPASVSGSPGQSITISCTGTSSDVGGYNYVSWYQQHPGKAPKLMIYEVSNRPSGV",
    "IGKV3-20": "EIVLTQSPGTLSLSPGERATLSCRASQSVSSSYLAWYQQKPGQAPRLLIY",
    "IGHV1-2": "QVQLVQSGAEVKKPGASVKVSCKASGYTFTGYYMHWVRQAPGQGLEWMGWINPNSGGT",
    "IGKV4-1": "DIVMTQSPDS",
    "IGHV4-34": "QVQLQQWGAGLLKPSETLSLTC",
    "IGLV1-51": "QSVLTQPPSVSAAPGQKVTISCSGSSS",
    "IGHV5-51": "EVQLVQSGAEVKKPGESLKISCKGSGYSFTSYWIGWVRQMPGKGL",
    "IGHV3-33": "QVQLVESGGGVVQPGRS",
    "IGKV2-28": "DIVMTQSPLSLPVTPGEPASISCRSSQSLLHSNGYN",
}


def antibodies(n: int = len(STARTS), *, max_new_tokens: int = LIMIT) -> Workload:
    """The first ``n`` starts of chains, 10 to 60 letters long, to be continued by ``max_new_tokens`` letters."""
    check_int("n", n, 1)
    if n > len(STARTS):
        raise ConfigError(f"there are {len(STARTS)} starts of chains, got n = {n}")
    chosen = list(STARTS.items())[:n]
    return Workload("antibodies", tuple(Request(gene, start, max_new_tokens=max_new_tokens) for gene, start in chosen))


def main() -> None:
    """Print the prompts as JSON lines, as ``blockserve run --prompts`` reads them."""
    for request in antibodies():
        print(json.dumps({"id": request.id, "prompt": request.prompt, "max_new_tokens": request.max_new_tokens}))


if __name__ == "__main__":
    main()
