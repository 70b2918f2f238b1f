# SPDX-License-Identifier: ISC
# hf-infer --images: vision encoders' activations and features, against float64
# (test/ref/vision_ref.py); pictures and where they are from are in
# hf-infer-pixels.bats.
load helpers

setup_file() {
    py "$ROOT/test/ref/vision_ref.py" pictures "$BATS_FILE_TMPDIR"
}

# held FAMILY...: all its variants; a line for each.
held() {
    local all family names
    all=$(py "$ROOT/test/ref/vision_ref.py" list | cut -f 1)
    for family; do
        names=$(grep -E "^$family(:|$)" <<<"$all")
        # shellcheck disable=SC2086
        run -0 py "$ROOT/test/ref/vision_run.py" acts "$BATS_FILE_TMPDIR/a-b" $names
        [ "$(grep -c ': places .* features ' <<<"$output")" = "$(wc -l <<<"$names")" ]
    done
}

@test "hf-infer --images: CLIP's rows at each place and layer, features and metadata are the reference's" {
    held clip
}

@test "hf-infer --images: SigLIP's are, with its head and without" {
    held siglip
}

@test "hf-infer --images: DINOv2's are, by either interpolation of positions, with SwiGLU and registers" {
    held dinov2 dinov2_with_registers
}

@test "hf-infer --images: DINOv3's are, by either spelling of its names" {
    held dinov3_vit
}

@test "hf-infer --images: ViT's are, with its pooler and as a classifier" {
    held vit
}

@test "hf-infer-images.bats: a test holds each family that the reference has" {
    for family in $(py "$ROOT/test/ref/vision_ref.py" list | sed 's/[:\t].*//' | sort -u); do
        grep -qE "^    held .*\b$family( |$)" "$BATS_TEST_FILENAME"
    done
}
