"""paddle.static.amp.bf16.amp_lists: which ops of a program run in bfloat16."""

from __future__ import annotations

from collections.abc import Iterable

from bireme.static.amp.lists import AutoMixedPrecisionLists


class AutoMixedPrecisionListsBF16(AutoMixedPrecisionLists):
    """Ops that run in bfloat16 and ops that stay in float32, in addition to ops that declare it
    themselves; `custom_fp32_varnames` keep the ops that read these variables."""

    def __init__(
        self,
        custom_bf16_list: Iterable[str] | None = None,
        custom_fp32_list: Iterable[str] | None = None,
        custom_fp32_varnames: Iterable[str] | None = None,
    ) -> None:
        super().__init__(custom_bf16_list, custom_fp32_list, custom_fp32_varnames, "bfloat16")

    @property
    def bf16_list(self) -> set[str]:
        return self.white_list

    @property
    def fp32_list(self) -> set[str]:
        return self.black_list

    @property
    def fp32_varnames(self) -> set[str]:
        return set(self.black_varnames)


_plain = AutoMixedPrecisionListsBF16()
bf16_list = _plain.bf16_list
fp32_list = _plain.fp32_list
gray_list = _plain.gray_list

__all__ = ["AutoMixedPrecisionListsBF16", "bf16_list", "fp32_list", "gray_list"]
