// Command speccoverage compares the requirements of docs/spec with the tests that cite them.
//
// A test cites a requirement by its number in a name or a comment: CS-081. That says that the test asserts
// every clause of it; if it asserts only some, the citation is written "CS-190 (part)". "CS-040 to 046" cites
// a run of numbers. Runs and parts are counted apart: only what a test cites by its own number, without
// "(part)", counts as tested. A clause such as SS-W01a is a part of SS-W01.
//
// Without arguments every specification file is reported; with prefixes (CS IPU) only these, with the numbers
// that are not tested. With -check it fails if the share of tested requirements of what is built is below its
// threshold, or if a list of docs/spec/README.md is not true any more.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// thresholds are the percentages of requirements that tests must cite whole, by specification. The aim is 95.
// If it is not reached, the present value stands here, and may only grow.
var thresholds = map[string]int{"ACJ": 95, "ADS": 98, "ASTS": 98, "BJ": 95, "CRR": 98, "CS": 98, "DP": 95,
	"EJ": 95, "IMG": 95, "IPU": 98, "JST": 95, "ND": 99, "OPS": 98, "PPM": 95, "PPS": 95, "PUB": 95, "SS": 98,
	"UD": 95, "WS": 98}

func main() {
	check := flag.Bool("check", false, "fail below the thresholds")
	flag.Parse()
	if err := run(os.Stdout, ".", flag.Args(), *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// report has the results for one specification.
type report struct {
	whole, run, part, none, left []string
}

// total returns how many requirements are counted; those that are not built are left out.
func (r *report) total() int { return len(r.whole) + len(r.run) + len(r.part) + len(r.none) }

func (r *report) percent() int { return 100 * len(r.whole) / max(1, r.total()) }

func run(out io.Writer, root string, prefixes []string, check bool) error {
	required, err := requirements(filepath.Join(root, "docs/spec"))
	if err != nil {
		return err
	}

	leftOut, err := listed(filepath.Join(root, "docs/spec/README.md"), required)
	if err != nil {
		return err
	}

	cited, err := citations(root)
	if err != nil {
		return err
	}

	reports, names, wrong := map[string]*report{}, []string(nil), []string(nil)
	for _, r := range required {
		if reports[r.prefix] == nil {
			reports[r.prefix] = &report{}
			names = append(names, r.prefix)
		}
		this := reports[r.prefix]
		list := &this.none
		switch how := cited[r]; {
		case leftOut[r]:
			list = &this.left
			if how == whole {
				wrong = append(wrong,
					fmt.Sprintf("%s is cited by a test, and docs/spec/README.md says that it is not built",
						r))
			}
		case how == whole:
			list = &this.whole
		case how == inRun:
			list = &this.run
		case how == part:
			list = &this.part
		}
		*list = append(*list, r.number)
	}

	slices.Sort(names)
	for _, prefix := range names {
		this := reports[prefix]
		if len(prefixes) > 0 && !slices.Contains(prefixes, prefix) ||
			this.total() == 0 && len(prefixes) == 0 {
			continue
		}
		fmt.Fprintf(out,
			"%-4s %3d of %3d requirements tested (%d %%); %d only in runs of numbers, %d in part, %d not cited; %d not built\n",
			prefix, len(this.whole), this.total(), this.percent(), len(this.run), len(this.part),
			len(this.none), len(this.left))
		if len(prefixes) > 0 {
			for _, list := range []struct {
				words   string
				numbers []string
			}{{"in runs", this.run}, {"in part", this.part}, {"not cited", this.none},
				{"not built", this.left}} {
				fmt.Fprintf(out, "     %s: %s\n", list.words, strings.Join(list.numbers, " "))
			}
		}
		if least := thresholds[prefix]; this.percent() < least {
			wrong = append(wrong, fmt.Sprintf("%s: %d %% of the requirements are tested; %d %% must be",
				prefix, this.percent(), least))
		}
	}

	if check && len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}

	return nil
}
