"""Fourier transforms of signals and images."""

from tests.parity.table import I, T, V, case, case_fn, raises

C = "complex64"

for _name in ("fft", "ifft", "rfft", "ihfft"):
    case(f"fft.{_name}", T(3, 6))
    case(f"fft.{_name}", T(3, 5, dtype="float64"), 8, 0, "ortho")
    case(f"fft.{_name}", T(3, 7), n=4, axis=-1, norm="forward")
    case(f"fft.{_name}", I(3, 6), _check_grad=False)
for _name in ("fft", "ifft", "irfft", "hfft"):
    case(f"fft.{_name}", T(3, 6, dtype=C))
    case(f"fft.{_name}", T(3, 5, dtype="complex128"), 8, 0, "ortho")
    case(f"fft.{_name}", T(3, 7, dtype=C), n=5, norm="forward")
case("fft.irfft", T(3, 4))
case("fft.irfft", T(3, 4, dtype=C), n=1)
case("fft.irfft", T(3, 1, dtype=C), _check_grad=False)
case("fft.fft", T(0, 4), _check_grad=False)
case("fft.fft", T(4, 0), _check_grad=False)
case("fft.fft", T(4), axis=None)

for _name in ("fftn", "ifftn", "rfftn", "ihfftn"):
    case(f"fft.{_name}", T(2, 3, 4))
    case(f"fft.{_name}", T(2, 5, 4), s=(6, 3), norm="ortho")
    case(f"fft.{_name}", T(2, 5, 4), axes=(2, 0), norm="forward")
    case(f"fft.{_name}", T(4, 5, 2, dtype="float64"), s=(3, 6, 4), axes=(1, 0, 2))
for _name in ("fftn", "ifftn", "irfftn", "hfftn"):
    case(f"fft.{_name}", T(2, 3, 4, dtype=C), _rtol=1e-4, _atol=1e-4)
    case(f"fft.{_name}", T(2, 5, 4, dtype=C), s=(6, 3), norm="ortho")
    case(f"fft.{_name}", T(2, 5, 4, dtype=C), axes=(2, 0), norm="forward")
case("fft.fftn", T(2, 2, 3, 2, dtype=C), _rtol=1e-4, _atol=1e-4)
case("fft.rfftn", T(2, 2, 3, 2), _rtol=1e-4, _atol=1e-4)
for _name in ("fft2", "ifft2", "rfft2", "ihfft2"):
    case(f"fft.{_name}", T(2, 3, 4))
    case(f"fft.{_name}", T(3, 4), s=[4, 3], axes=[1, 0], norm="ortho")
for _name in ("fft2", "ifft2", "irfft2", "hfft2"):
    case(f"fft.{_name}", T(2, 3, 4, dtype=C))
    case(f"fft.{_name}", T(3, 4, dtype=C), s=[4, 3], axes=[1, 0], norm="ortho")
case("fft.fft2", T(3, 4), axes=None)

case("fft.fftfreq", 7, 0.5)
case("fft.fftfreq", 8, dtype="float64")
case("fft.fftfreq", 8, dtype="int64")
case("fft.rfftfreq", 7, 0.5)
case("fft.rfftfreq", 8, dtype="float64")
case("fft.fftshift", T(3, 4))
case("fft.ifftshift", T(3, 5, dtype=C))
case("fft.ifftshift", T(3, 5))
case_fn("fft-keywords", lambda p, x: p.fft.fft(input=x, dim=0), T(3, 4))
case_fn("fft-out", lambda p, x: p.fft.rfft(x, out=p.zeros([1], "complex64")), T(3, 4, grad=False))


def _spectral_derivative(p, x):
    k = p.fft.fftfreq(8, 1 / 8).astype("complex64") * (2j * 3.14159265)
    return p.fft.ifft(p.fft.fft(x) * k).real()


case_fn("spectral-derivative", _spectral_derivative, T(8), _rtol=1e-4, _atol=1e-4)

raises("fft.fft", T(3), norm="both")
raises("fft.fft", T(3), norm=None)
raises("fft.fft", T(3), n=0)
raises("fft.fft", T(3), n=2.5)
raises("fft.fft", T(3), axis=1)
raises("fft.fft", T())
raises("fft.rfft", T(3, dtype=C))
raises("fft.fftn", T(3, 4), s=3)
raises("fft.fftn", T(3, 4), axes=1)
raises("fft.fftn", T(3, 4), axes=(0, 3))
raises("fft.fftn", T(3, 4), s=(2, 2), axes=(0,))
raises("fft.fftn", T(3, 4), s=(2, 2, 2))
raises("fft.fft2", T(3))
raises("fft.fft2", T(3, 4), s=(3,))
raises("fft.fftfreq", 0)

# ---------------------------------------------------------------------------------- short times

WINDOW = V([0.1, 0.4, 0.9, 1.0, 0.9, 0.4, 0.2, 0.1], grad=True)

case("signal.frame", T(10), 4, 2)
case("signal.frame", T(2, 10), 4, 3)
case("signal.frame", T(10, 2), 4, 3, axis=0)
case("signal.frame", I(10), 4, 4, axis=0)
case("signal.frame", T(80), 66, 2, axis=0)
case("signal.overlap_add", T(4, 3), 2)
case("signal.overlap_add", T(2, 4, 3), 3)
case("signal.overlap_add", T(3, 4, 2), 1, axis=0)
case("signal.stft", T(2, 32), 8, _rtol=1e-4, _atol=1e-4)
case("signal.stft", T(32), 8, hop_length=3, window=WINDOW, _rtol=1e-4, _atol=1e-4)
case("signal.stft", T(2, 32), 12, 4, 8, WINDOW, True, "constant", True, False, _rtol=1e-4,
     _atol=1e-4)  # fmt: skip
case("signal.stft", T(2, 32), 8, center=False, _rtol=1e-4, _atol=1e-4)
case("signal.stft", T(2, 32, dtype="complex128"), 8, center=False,
     window=V([0.5] * 8, "complex128"))  # fmt: skip
case("signal.istft", T(2, 5, 9), 8, _rtol=1e-4, _atol=1e-4)
case("signal.istft", T(2, 5, 9, dtype=C), 8, _rtol=1e-4, _atol=1e-4)
case("signal.istft", T(5, 9, dtype=C), 8, 2, window=WINDOW, length=14, _rtol=1e-4, _atol=1e-4)
case("signal.istft", T(2, 7, 9, dtype=C), 12, 4, 8, WINDOW, True, True, _rtol=1e-4, _atol=1e-4)
case("signal.istft", T(2, 8, 9, dtype=C), 8, onesided=False, _rtol=1e-4, _atol=1e-4)
case("signal.istft", T(2, 8, 9, dtype=C), 8, center=False, onesided=False, return_complex=True,
     _rtol=1e-4, _atol=1e-4)  # fmt: skip
raises("signal.frame", T(3), 4, 1)
raises("signal.frame", T(3), 2, 0)
raises("signal.frame", T(3, 3), 2, 1, axis=1)
raises("signal.stft", T(2, 2, 32), 8)
raises("signal.stft", T(2, 4), 8)
raises("signal.stft", T(2, 32), 8, win_length=9)
raises("signal.stft", T(2, 32), 8, window=T(5))
raises("signal.overlap_add", T(3, 4), 5, axis=0)
case_fn(
    "istft-computed window", lambda p, x, w: p.signal.istft(x, 8, 2, window=w * 0.5),
    T(5, 9, dtype=C), WINDOW, _rtol=1e-4, _atol=1e-4,
)  # fmt: skip
raises("signal.istft", T(2, 5, 9, dtype=C), 16)
raises("signal.istft", T(2, 5, 9, dtype=C), 8, hop_length=9)
raises("signal.istft", T(5, 9, dtype=C), 8, hop_length=8, window=V([0.0] * 4 + [1.0] * 4))
