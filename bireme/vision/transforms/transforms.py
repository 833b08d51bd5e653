"""Transforms as objects. Random ones draw from Python's `random`, so `random.seed` repeats them."""

from __future__ import annotations

import math
import numbers
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.ops.manipulation import transpose
from bireme.vision.transforms import functional as F
from bireme.vision.transforms.arrays import Fill

Range = float | Sequence[float]


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]):
        self.transforms = list(transforms)

    def __call__(self, data: Any) -> Any:
        for transform in self.transforms:
            data = transform(data)
        return data

    def __repr__(self) -> str:
        lines = "".join(f"\n    {t!r}" for t in self.transforms)
        return f"Compose({lines}\n)"


class BaseTransform:
    """A transform of the fields of a sample.

    `keys` names them in order: 'image', 'coords', 'boxes' and 'mask' are changed by the method
    `_apply_image` ... of a subclass; other names pass through. `_get_params(inputs)` draws, from
    the tuple of all fields, what they share (`self.params`).
    """

    def __init__(self, keys: Sequence[str] | None = None):
        self.keys = ("image",) if keys is None else tuple(keys)
        self.params: Any = None

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        images = [f for key, f in zip(self.keys, inputs, strict=False) if key == "image"]
        return self._draw(images[0]) if images else None

    def _draw(self, image: Any) -> Any:
        """What a transform of ours chooses at random for this image."""
        return None

    def _get_apply(self, key: str) -> Callable[[Any], Any] | None:
        found = getattr(self, f"_apply_{key}", None)
        if found is None and key in ("image", "coords", "boxes", "mask"):
            raise NotImplementedError(
                f"{type(self).__name__} must define _apply_{key}(self, {key})"
            )
        return found

    def __call__(self, inputs: Any) -> Any:
        single = not isinstance(inputs, tuple)
        fields = (inputs,) if single else inputs
        if len(self.keys) > len(fields):
            raise InvalidArgument(
                f"[{type(self).__name__}] keys={self.keys} names more fields than the sample has "
                f"({len(fields)})"
            )
        self.params = self._get_params(fields)
        changed = list(fields)
        for i, key in enumerate(self.keys):
            apply = self._get_apply(key)
            changed[i] = fields[i] if apply is None else apply(fields[i])
        return changed[0] if single else tuple(changed)

    def __repr__(self) -> str:
        hidden = ("keys", "params")
        shown = [f"{k}={v!r}" for k, v in vars(self).items() if k not in hidden]
        return f"{type(self).__name__}({', '.join(shown)})"


class ToTensor(BaseTransform):
    """A float32 tensor; uint8 images are scaled to 0..1."""

    def __init__(self, data_format: str = "CHW", keys: Sequence[str] | None = None):
        super().__init__(keys)
        self.data_format = data_format

    def _apply_image(self, image: Any) -> Tensor:
        return F.to_tensor(image, self.data_format)


class Resize(BaseTransform):
    """Scale to (height, width), or the shorter side to one number."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.size = size
        self.interpolation = interpolation

    def _apply_image(self, image: Any) -> Any:
        return F.resize(image, self.size, self.interpolation)


class CenterCrop(BaseTransform):
    """A piece from the middle."""

    def __init__(self, size: int | Sequence[int], keys: Sequence[str] | None = None):
        super().__init__(keys)
        self.size = F.pair(size)

    def _apply_image(self, image: Any) -> Any:
        return F.center_crop(image, self.size)


class RandomCrop(BaseTransform):
    """A piece from anywhere, after padding if asked."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Fill = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.size = F.pair(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def _padded(self, image: Any) -> Any:
        if self.padding is not None:
            image = F.pad(image, self.padding, self.fill, self.padding_mode)
        if self.pad_if_needed:
            (height, width), (need_height, need_width) = F.size_of(image), self.size
            if width < need_width:
                image = F.pad(image, (need_width - width, 0), self.fill, self.padding_mode)
            if height < need_height:
                image = F.pad(image, (0, need_height - height), self.fill, self.padding_mode)
        return image

    def _draw(self, image: Any) -> tuple[int, int]:
        (height, width), (need_height, need_width) = F.size_of(self._padded(image)), self.size
        if height < need_height or width < need_width:
            raise InvalidArgument(
                f"[RandomCrop] an image of {height} x {width} holds no piece of {need_height} x "
                f"{need_width}; set pad_if_needed=True"
            )
        if (height, width) == (need_height, need_width):
            return 0, 0
        return random.randint(0, height - need_height), random.randint(0, width - need_width)

    def _apply_image(self, image: Any) -> Any:
        top, left = self.params
        return F.crop(self._padded(image), top, left, *self.size)


class RandomResizedCrop(BaseTransform):
    """A piece of random size and proportions, scaled to `size`."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.size = F.pair(size)
        self.scale = tuple(scale)
        self.ratio = tuple(ratio)
        self.interpolation = interpolation

    def _draw(self, image: Any) -> tuple[int, int, int, int]:
        height, width = F.size_of(image)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = random.uniform(*self.scale) * height * width
            ratio = math.exp(random.uniform(low, high))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return random.randint(0, height - h), random.randint(0, width - w), h, w
        # No luck: the largest piece from the middle within the proportions.
        ratio = min(max(width / height, min(self.ratio)), max(self.ratio))
        h, w = min(height, round(width / ratio)), min(width, round(height * ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def _apply_image(self, image: Any) -> Any:
        return F.resize(F.crop(image, *self.params), self.size, self.interpolation)


class _RandomFlip(BaseTransform):
    flip: Callable[[Any], np.ndarray]

    def __init__(self, prob: float = 0.5, keys: Sequence[str] | None = None):
        super().__init__(keys)
        if not 0 <= prob <= 1:
            raise InvalidArgument(
                f"[{type(self).__name__}] prob must lie between 0 and 1. Received: {prob}"
            )
        self.prob = prob

    def _draw(self, image: Any) -> bool:
        return random.random() < self.prob

    def _apply_image(self, image: Any) -> Any:
        return type(self).flip(image) if self.params else image


class RandomHorizontalFlip(_RandomFlip):
    """Left and right exchanged with probability `prob`."""

    flip = staticmethod(F.hflip)


class RandomVerticalFlip(_RandomFlip):
    """Top and bottom exchanged with probability `prob`."""

    flip = staticmethod(F.vflip)


class Transpose(BaseTransform):
    """Axes in another order; [height, width, channels] to [channels, height, width]."""

    def __init__(self, order: Sequence[int] = (2, 0, 1), keys: Sequence[str] | None = None):
        super().__init__(keys)
        self.order = tuple(order)

    def _apply_image(self, image: Any) -> Any:
        if isinstance(image, Tensor):
            return transpose(image, self.order)
        array = F.as_image(image, "Transpose")
        return (array[..., None] if array.ndim == 2 else array).transpose(self.order)


class Normalize(BaseTransform):
    """(image - mean) / std per channel."""

    def __init__(
        self,
        mean: Range = 0.0,
        std: Range = 1.0,
        data_format: str = "CHW",
        to_rgb: bool = False,
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.mean: Any = [mean] * 3 if isinstance(mean, numbers.Real) else mean
        self.std: Any = [std] * 3 if isinstance(std, numbers.Real) else std
        self.data_format = data_format
        self.to_rgb = to_rgb

    def _apply_image(self, image: Any) -> Any:
        return F.normalize(image, self.mean, self.std, self.data_format, self.to_rgb)


class Pad(BaseTransform):
    """Borders around the image."""

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: Fill = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def _apply_image(self, image: Any) -> Any:
        return F.pad(image, self.padding, self.fill, self.padding_mode)


class Grayscale(BaseTransform):
    """Brightness as 1 or 3 equal channels."""

    def __init__(self, num_output_channels: int = 1, keys: Sequence[str] | None = None):
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, image: Any) -> Any:
        return F.to_grayscale(image, self.num_output_channels)


class _Adjust(BaseTransform):
    """Changes one property of colours by a random factor around `centre`."""

    adjust: Callable[[Any, float], np.ndarray]
    centre = 1.0
    most = math.inf

    def __init__(self, value: Range, keys: Sequence[str] | None = None):
        super().__init__(keys)
        if isinstance(value, numbers.Real):
            spread = float(value)
            low, high = self.centre - spread, self.centre + spread
            low = max(low, 0.0) if self.centre else low
            valid = 0 <= spread <= self.most
        else:
            low, high = value  # pyright: ignore[reportGeneralTypeIssues]
            valid = low <= high and self.centre - self.most <= low and high <= self.most
        if not valid:
            raise InvalidArgument(f"[{type(self).__name__}] bad range. Received: {value!r}")
        self.value = None if low == high == self.centre else (low, high)

    def _draw(self, image: Any) -> float | None:
        return None if self.value is None else random.uniform(*self.value)

    def _apply_image(self, image: Any) -> Any:
        return image if self.params is None else type(self).adjust(image, self.params)


class BrightnessTransform(_Adjust):
    """Brightness times a random factor from [1 - value, 1 + value]."""

    adjust = staticmethod(F.adjust_brightness)


class ContrastTransform(_Adjust):
    """Contrast times a random factor from [1 - value, 1 + value]."""

    adjust = staticmethod(F.adjust_contrast)


class SaturationTransform(_Adjust):
    """Saturation times a random factor from [1 - value, 1 + value]."""

    adjust = staticmethod(F.adjust_saturation)


class HueTransform(_Adjust):
    """Hue turned by a random part of the circle from [-value, value], at most half of it."""

    adjust = staticmethod(F.adjust_hue)
    centre = 0.0
    most = 0.5


class ColorJitter(BaseTransform):
    """Random brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self,
        brightness: Range = 0,
        contrast: Range = 0,
        saturation: Range = 0,
        hue: Range = 0,
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation
        self.hue = hue
        self._parts = [
            BrightnessTransform(brightness),
            ContrastTransform(contrast),
            SaturationTransform(saturation),
            HueTransform(hue),
        ]

    def _draw(self, image: Any) -> Compose:
        # Each part draws once here, so that all images of a sample change alike.
        order = list(self._parts)
        random.shuffle(order)
        for part in order:
            part.params = part._draw(image)
        return Compose([part._apply_image for part in order])

    def _apply_image(self, image: Any) -> Any:
        return self.params(image)


class RandomErasing(BaseTransform):
    """Overwrites a random piece with `value`, a number per channel or 'random' noise."""

    def __init__(
        self,
        prob: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Literal["random"] | Fill = 0,
        inplace: bool = False,
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.prob = prob
        self.scale = tuple(scale)
        self.ratio = tuple(ratio)
        self.value = value
        self.inplace = inplace

    def _draw(self, image: Any) -> tuple[int, int, int, int] | None:
        if random.random() >= self.prob:
            return None
        is_tensor = isinstance(image, Tensor)
        height, width = tuple(image.shape[-2:]) if is_tensor else F.size_of(image)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = random.uniform(*self.scale) * height * width
            ratio = math.exp(random.uniform(low, high))
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < h < height and 0 < w < width:
                return random.randint(0, height - h), random.randint(0, width - w), h, w
        return None

    def _apply_image(self, image: Any) -> Any:
        if self.params is None:
            return image
        i, j, h, w = self.params
        is_tensor = isinstance(image, Tensor)
        shape = tuple(image.shape) if is_tensor else np.asarray(image).shape
        piece = (*shape[:-2], h, w) if is_tensor else (h, w, *shape[2:])
        if self.value == "random":
            value: Any = np.random.normal(size=piece)
        else:
            value = np.asarray(self.value)
            if is_tensor and value.ndim == 1:
                value = value[:, None, None]
        return F.erase(image, i, j, h, w, value, self.inplace)


class RandomRotation(BaseTransform):
    """Turned by a random angle from [-degrees, degrees] or (from, to)."""

    def __init__(
        self,
        degrees: Range,
        interpolation: str = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Fill = 0,
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.degrees = _degrees("RandomRotation", degrees)
        self.interpolation = interpolation
        self.expand = expand
        self.center = center
        self.fill = fill

    def _draw(self, image: Any) -> float:
        return random.uniform(*self.degrees)

    def _apply_image(self, image: Any) -> Any:
        return F.rotate(image, self.params, self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(BaseTransform):
    """Turned, moved, scaled and sheared at random."""

    def __init__(
        self,
        degrees: Range,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Range | None = None,
        interpolation: str = "nearest",
        fill: Fill = 0,
        center: Sequence[float] | None = None,
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        self.degrees = _degrees("RandomAffine", degrees)
        self.translate = translate
        self.scale = scale
        self.shear = None if shear is None else _degrees("RandomAffine", shear)
        self.interpolation = interpolation
        self.fill = fill
        self.center = center

    def _draw(self, image: Any) -> tuple[Any, ...]:
        height, width = F.size_of(image)
        angle = random.uniform(*self.degrees[:2])
        move = (0, 0)
        if self.translate is not None:
            reach = self.translate[0] * width, self.translate[1] * height
            move = (
                round(random.uniform(-reach[0], reach[0])),
                round(random.uniform(-reach[1], reach[1])),
            )
        scale = 1.0 if self.scale is None else random.uniform(*self.scale)
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = random.uniform(*self.shear[:2])
            if len(self.shear) == 4:
                shear[1] = random.uniform(*self.shear[2:])
        return angle, move, scale, shear

    def _apply_image(self, image: Any) -> Any:
        angle, move, scale, shear = self.params
        return F.affine(
            image, angle, move, scale, shear, self.interpolation, self.fill, self.center
        )


class RandomPerspective(BaseTransform):
    """Seen from another side, with probability `prob`: the corners move inwards at random.

    `distortion_scale`, 0 to 1, is how far they may go on the way to the middle.
    """

    def __init__(
        self,
        prob: float = 0.5,
        distortion_scale: float = 0.5,
        interpolation: str = "nearest",
        fill: Fill = 0,
        keys: Sequence[str] | None = None,
    ):
        super().__init__(keys)
        for name, value in (("prob", prob), ("distortion_scale", distortion_scale)):
            if not 0 <= value <= 1:
                raise InvalidArgument(
                    f"[RandomPerspective] {name} must lie between 0 and 1. Received: {value}"
                )
        self.prob = prob
        self.distortion_scale = distortion_scale
        self.interpolation = interpolation
        self.fill = fill

    def get_params(
        self, width: int, height: int, distortion_scale: float
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The corners, and where they go."""
        far_x = int(distortion_scale * (width // 2)) + 1
        far_y = int(distortion_scale * (height // 2)) + 1
        left, right = (0, far_x), (width - far_x, width)
        top, bottom = (0, far_y), (height - far_y, height)
        ends = [
            [int(random.uniform(*across)), int(random.uniform(*down))]
            for across, down in ((left, top), (right, top), (right, bottom), (left, bottom))
        ]
        starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        return starts, ends

    def _draw(self, image: Any) -> Any:
        if random.random() >= self.prob:
            return None
        height, width = F.size_of(image)
        return self.get_params(width, height, self.distortion_scale)

    def _apply_image(self, image: Any) -> Any:
        if self.params is None:
            return image
        starts, ends = self.params
        return F.perspective(image, starts, ends, self.interpolation, self.fill)


def _degrees(owner: str, value: Range) -> tuple[float, ...]:
    if isinstance(value, numbers.Real):
        if value < 0:
            raise InvalidArgument(
                f"[{owner}] a single angle must not be negative. Received: {value}"
            )
        return -float(value), float(value)
    found = tuple(float(v) for v in value)  # pyright: ignore[reportGeneralTypeIssues]
    if len(found) not in (2, 4):
        raise InvalidArgument(f"[{owner}] give one angle or a range. Received: {value!r}")
    return found
