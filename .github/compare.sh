#!/bin/bash
# The check of action.yml: measure base and head together, and say the answer where GitHub shows it.
set -u -o pipefail

results=curvescope-results
summary=$(mktemp)
if [ -z "$BASE" ]; then
    echo "::error title=Curvescope::Name the revision to compare with: base."
    exit 2
fi
git fetch --quiet --depth 1 origin "$BASE" || exit 2
mkdir -p "$results"
curvescope compare --measure base=FETCH_HEAD head=. --step "$STEP" --batch "$BATCH" \
    --fail-over "$FAIL_OVER" --time-limit "$TIME_LIMIT" --output "$results/runs" \
    --summary "$summary" --junit "$results/junit.xml"
code=$?
for version in base head; do
    if [ -d "$results/runs/$version" ]; then
        curvescope export "$results/runs/$version" --archive -o "$results/$version.curvescope"
    fi
done
cat "$summary" >> "$GITHUB_STEP_SUMMARY"
answer=$(sed -n 's/^### Time per step: //p' "$summary")
echo "answer=${answer:-no answer}" >> "$GITHUB_OUTPUT"
first() { grep --max-count=1 "^$1" "$summary"; }
case $answer in
    worse) echo "::error title=Step time::$(first Failed)" ;;
    "could not tell") echo "::warning title=Step time::$(first 'Could not tell')" ;;
    "not worse") echo "::notice title=Step time::$(first 'No step time')" ;;
    *) echo "::error title=Curvescope::The step could not be measured; the log says why." ;;
esac
exit "$code"
