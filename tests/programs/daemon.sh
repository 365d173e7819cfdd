# Does a worker's work after the run that started it has ended: waits for the file $1/go, and says what it did in $1/said.
scratch=$1
shift
while [ ! -e "$scratch/go" ]; do sleep 0.05; done
"$@" > "$scratch/said" 2>&1
echo "ended with $?" > "$scratch/ended.tmp"
mv "$scratch/ended.tmp" "$scratch/ended"
