#!/bin/sh
# Makes one image of the sky from overlapping plates with the Montage toolkit: mosaic.sh DIRECTORY
#
# DIRECTORY/plates/*.fits are cut into overlapping tiles, the tiles are projected onto one fine grid, the differences
# where they overlap give each tile's background, and the corrected tiles are added. The results are in
# DIRECTORY/mosaic; DIRECTORY/work holds what the steps hand to each other.
set -eu
cd "$1"
TILES=3            # a plate becomes TILES x TILES tiles
TILE=72            # pixels along a tile; neighbours overlap by a third
STEP=52
GRID=0.00003635    # degrees a pixel of the mosaic: 13 times finer than the plates
mkdir -p work/tiles work/projected work/differences work/corrected mosaic
cd work

# A Montage program says how it went on its standard output, not by its exit code.
montage() {
    "$@" >last.log || { cat last.log >&2; exit 1; }
    if grep -q 'stat="ERROR"' last.log; then
        echo "mosaic: $*" >&2
        cat last.log >&2
        exit 1
    fi
}

# A table of the images in a directory. mImgtbl lists them in the directory's own order, which differs from one file
# system to the next, and sums depend on their order: so sort them by name.
images() {
    montage mImgtbl "$1" unsorted.tbl
    { grep '^[\\|]' unsorted.tbl
      grep -v '^[\\|]' unsorted.tbl | awk '{ print $NF "\t" $0 }' | LC_ALL=C sort -t "$(printf '\t')" -k 1,1 |
          cut -f 2- | awk '{ printf "%7d%s\n", NR - 1, substr($0, 8) }'
    } >"$2"
}

for plate in ../plates/*.fits; do
    name=$(basename "$plate" .fits)
    for row in $(seq 0 $((TILES - 1))); do
        for column in $(seq 0 $((TILES - 1))); do
            montage mSubimage -p "$plate" "tiles/${name}_$row$column.fits" $((column * STEP)) $((row * STEP)) $TILE $TILE
        done
    done
done

images tiles tiles.tbl
montage mMakeHdr -p $GRID tiles.tbl grid.hdr
montage mProjExec -p tiles tiles.tbl grid.hdr projected projected.stats
images projected projected.tbl
montage mOverlaps projected.tbl overlaps.tbl
montage mDiffExec -p projected overlaps.tbl grid.hdr differences
montage mFitExec overlaps.tbl fits.tbl differences
montage mBgModel projected.tbl fits.tbl ../mosaic/corrections.tbl
montage mBgExec -p projected projected.tbl ../mosaic/corrections.tbl corrected
images corrected corrected.tbl
montage mAdd -p corrected corrected.tbl grid.hdr ../mosaic/mosaic.fits
montage mShrink ../mosaic/mosaic.fits ../mosaic/small.fits 6
montage mViewer -ct 0 -gray ../mosaic/small.fits -1s max gaussian-log -out ../mosaic/mosaic.png
