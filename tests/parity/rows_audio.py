"""Mel scales, windows and spectrograms."""

from tests.parity.table import T, case, layer, raises, raises_layer

WIDE = {"_rtol": 1e-4, "_atol": 1e-4}

for _htk in (False, True):
    case("audio.functional.hz_to_mel", T(6, low=0, high=8000), _htk, **WIDE)
    case("audio.functional.hz_to_mel", 440.0, _htk)
    case("audio.functional.hz_to_mel", 4400.0, _htk)
    case("audio.functional.mel_to_hz", T(6, low=0, high=60), _htk, **WIDE)
    case("audio.functional.mel_to_hz", 5.0, _htk)
    case("audio.functional.mel_to_hz", 50.0, _htk)
    case("audio.functional.mel_frequencies", 10, 20.0, 8000.0, _htk, "float64", **WIDE)
case("audio.functional.fft_frequencies", 16000, 64)
case("audio.functional.compute_fbank_matrix", 16000, 64, 8, **WIDE)
case("audio.functional.compute_fbank_matrix", 16000, 64, 8, 50.0, 7000.0, True, 2.0, "float64",
     **WIDE)  # fmt: skip
case("audio.functional.compute_fbank_matrix", 16000, 64, 8, norm=None, **WIDE)
case("audio.functional.power_to_db", T(3, 4, low=0, high=2), **WIDE)
case("audio.functional.power_to_db", T(3, 4, low=1e-12, high=2), 2.0, 1e-5, 20.0, **WIDE)
case("audio.functional.power_to_db", T(3, 4, low=1, high=2), top_db=None, **WIDE)
case("audio.functional.create_dct", 5, 8, **WIDE)
case("audio.functional.create_dct", 5, 8, None, "float64", **WIDE)
raises("audio.functional.power_to_db", T(3), amin=0.0)
raises("audio.functional.power_to_db", T(3), top_db=-1.0)
raises("audio.functional.create_dct", 5, 8, "other")

for _window in (
    "hamming", "hann", "bartlett", "nuttall", "triang", "bohman", "blackman", "cosine", "tukey",
    "taylor", ("kaiser", 8.0), ("gaussian", 3.0), ("exponential", None, 2.0), ("tukey", 0.3),
    ("general_gaussian", 1.5, 3.0), ("general_hamming", 0.7), ("taylor", 5, 40, False),
    ("general_cosine", [0.5, 0.3, 0.2]),
):  # fmt: skip
    for _fftbins in (True, False):
        case("audio.functional.get_window", _window, 9, _fftbins, **WIDE)
        case("audio.functional.get_window", _window, 16, _fftbins, "float32", **WIDE)
case("audio.functional.get_window", "hann", 1)
raises("audio.functional.get_window", "flat", 8)
raises("audio.functional.get_window", "kaiser", 8)
raises("audio.functional.get_window", 3, 8)
raises("audio.functional.get_window", "hann", -1)
raises("audio.functional.get_window", ("exponential", 3.0), 8, False)

SOUND = T(2, 1000, low=-1, high=1)
LOOSE = {"_rtol": 2e-3, "_atol": 2e-3}
layer("audio.features.Spectrogram", 64, 32, inputs=[SOUND], **LOOSE)
layer("audio.features.Spectrogram", 64, None, 48, "hamming", 2.0, False, inputs=[SOUND], **LOOSE)
layer("audio.features.MelSpectrogram", 8000, 128, 64, n_mels=12, inputs=[SOUND], **LOOSE)
layer("audio.features.LogMelSpectrogram", 8000, 128, 64, n_mels=12, top_db=60.0, inputs=[SOUND],
      **LOOSE)  # fmt: skip
layer("audio.features.MFCC", 8000, 10, 128, n_mels=12, inputs=[SOUND], _rtol=1e-2, _atol=1e-2)
raises_layer("audio.features.MFCC", n_mfcc=20, n_mels=10)
raises_layer("audio.features.Spectrogram", power=0.0)


for name in (f"{kind}_window" for kind in ("bartlett", "blackman", "hamming", "hann", "kaiser")):
    case(name, 6)
    case(name, 5, periodic=False, dtype="float64")
    case(name, 1)
    case(name, 0)
    raises(name, -1)
case("hamming_window", 6, alpha=0.6, beta=0.3)
case("kaiser_window", 6, False, 5.0)
