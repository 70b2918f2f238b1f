# SPDX-License-Identifier: ISC
"""pictures.py PICTURES: images/s of one thread, from a JPEG of 500 x 375 to pixel_values of 224 x 224 (PICTURES is
build/test/bench/pictures), in ratio to PIL, which does the same in turn, but for rescaling and normalizing."""
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time

CPU = time.process_time
ROUNDS = 21
TURNS = 5


def photograph():
    """Slopes, edges and a little noise: as many bytes as a photograph of this size has."""
    y, x = np.mgrid[:375, :500]
    waves = [np.sin(x / a + y / b) + (x // c + y // d) % 2 for a, b, c, d in ((31, 17, 90, 70), (9, 45, 61, 120),
                                                                             (77, 13, 130, 47))]
    noise = np.random.default_rng(1).normal(0, 9, (375, 500, 3))
    rgb = 60 + 55 * np.stack(waves, -1) + noise
    file = io.BytesIO()
    Image.fromarray(rgb.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def pil(file, resample):
    """Seconds to decode, and to resize and crop."""
    times = []
    for _ in range(ROUNDS):
        start = CPU()
        image = Image.open(io.BytesIO(file)).convert("RGB")
        decoded = CPU()
        image = image.resize((298, 224), resample).crop((37, 0, 261, 224))
        times.append((decoded - start, CPU() - decoded))
    return [statistics.median(t) for t in zip(*times)]


def row(shape, ours, theirs, of):
    print("%-18s %-17s %-11s %7d %10.1f %-9s %5.2f  %s" % (
        "pictures", shape, "-", 1, 1 / ours, "image/s", theirs / ours, of))


def main(program):
    file = photograph()
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/a.jpg", "wb") as f:
            f.write(file)
        for resample, name in ((3, "bicubic"), (2, "bilinear"), (1, "Lanczos")):
            with open(tmp + "/preprocessor_config.json", "w") as f:
                json.dump({"image_processor_type": "CLIPImageProcessor", "resample": resample}, f)
            turns = []
            for _ in range(TURNS):
                ours = subprocess.run([program, tmp + "/a.jpg", tmp], stdout=subprocess.PIPE, check=True)
                turns.append([*map(float, ours.stdout.split()), *pil(file, resample)])
            decode, pixels, pil_decode, pil_pixels = (statistics.median(t) for t in zip(*turns))
            if resample == 3:
                row("JPEG, 500x375", decode, pil_decode, "PIL")
            row("to 224, " + name, pixels, pil_pixels, "PIL, 8-bit")
            if resample == 3:
                row("both", decode + pixels, pil_decode + pil_pixels, "PIL, 8-bit")


try:
    import numpy as np
    from PIL import Image
except ImportError:
    print("bench: PIL left out: python3-pil is not installed", file=sys.stderr)
else:
    main(sys.argv[1])
