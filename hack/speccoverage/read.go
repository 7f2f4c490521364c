package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// requirement is one number of a specification: "SS" and "214", or "SS" and "D01".
type requirement struct{ prefix, number string }

func (r requirement) String() string { return r.prefix + "-" + r.number }

// How a test cites a requirement; of several citations the best one counts.
type manner int

const (
	notCited manner = iota
	part            // "(part)" stands behind it, or a letter: one of its clauses
	inRun           // it lies within "CS-040 to 046"
	whole
)

const (
	number = `(?:[DW]\d{1,2}|\d{2,3})`
	// one is a number, perhaps with its prefix, the letter of a clause, and the mark of a part.
	one = `(?:([A-Z]{2,5})-)?(` + number + `)([a-z]?)\b(\s*\(part[^)]*\))?`
	// link matches the text between two numbers of a list.
	link = `\s*(,(?:\s+and\b)?|\band\b|\bto\b|-|\.\.)\s*`
)

var (
	definition = regexp.MustCompile(`^- ([A-Z]+)-(` + number + `)\b`)
	first      = regexp.MustCompile(`\b[A-Z]{2,5}-` + number + `[a-z]?\b`)
	element    = regexp.MustCompile(`^` + one)
	// wrapped matches where a comment goes on in the next line: a list of numbers may be wrapped.
	wrapped   = regexp.MustCompile(`\n\t*// `)
	following = regexp.MustCompile(`^` + link + one)
)

// requirements returns what the specification defines, in its order.
func requirements(dir string) ([]requirement, error) {
	var found []requirement
	err := eachLine(dir, ".md", func(line string) {
		if m := definition.FindStringSubmatch(line); m != nil &&
			!slices.Contains(found, requirement{m[1], m[2]}) {
			found = append(found, requirement{m[1], m[2]})
		}
	})
	return found, err
}

// citations returns how test files cite requirements.
func citations(dir string) (map[requirement]manner, error) {
	cited := map[requirement]manner{}
	err := eachLine(dir, "_test.go", func(line string) {
		for r, how := range cites(line) {
			cited[r] = max(cited[r], how)
		}
	})
	return cited, err
}

// cites returns what one line cites.
func cites(line string) map[requirement]manner {
	cited := map[requirement]manner{}
	cite := func(r requirement, how manner) { cited[r] = max(cited[r], how) }
	for {
		at := first.FindStringIndex(line)
		if at == nil {
			return cited
		}
		line = line[at[0]:]
		m := element.FindStringSubmatch(line)
		last := requirement{m[1], m[2]}
		cite(last, mannerOf(whole, m[3], m[4]))
		line = line[len(m[0]):]
		for {
			m := following.FindStringSubmatch(line)
			if m == nil {
				break
			}
			next := requirement{m[2], m[3]}
			if next.prefix == "" {
				next.prefix = last.prefix
			}
			switch m[1] {
			case "to", "-", "..":
				if cited[last] == whole {
					cited[last] = inRun
				}
				for _, r := range between(last, next) {
					cite(r, mannerOf(inRun, m[4], m[5]))
				}
			default:
				cite(next, mannerOf(whole, m[4], m[5]))
			}
			last = next
			line = line[len(m[0]):]
		}
	}
}

func mannerOf(best manner, letter, mark string) manner {
	if letter != "" || mark != "" {
		return part
	}
	return best
}

// between returns the numbers after the first up to the last.
func between(from, to requirement) []requirement {
	letter := strings.TrimRight(from.number, "0123456789")
	digits, ok := strings.CutPrefix(to.number, letter)
	low, err := strconv.Atoi(from.number[len(letter):])
	high, err2 := strconv.Atoi(digits)
	if !ok || err != nil || err2 != nil || from.prefix != to.prefix {
		return []requirement{to}
	}

	var all []requirement
	for n := low + 1; n <= high; n++ {
		all = append(all, requirement{from.prefix,
			fmt.Sprintf("%s%0*d", letter, len(from.number)-len(letter), n)})
	}

	return all
}

// notBuilt begins the table of requirements that are not counted.
const notBuilt = "Requirements of what is not built"

// listed returns the requirements that the table of the README leaves out: all of a specification (ACJ),
// numbers, or runs of numbers.
func listed(path string, required []requirement) (map[requirement]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	_, table, found := strings.Cut(string(text), notBuilt)
	if !found {
		return nil, fmt.Errorf("%s has no table %q", path, notBuilt)
	}

	left := map[requirement]bool{}
	begun := false
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			if begun {
				break
			}
			continue
		}
		begun = true
		cell := strings.TrimSpace(strings.Split(line, "|")[1])
		for name := range strings.SplitSeq(cell, ", ") {
			for _, r := range required {
				if r.prefix == name {
					left[r] = true
				}
			}
		}
		for r, how := range cites(cell) {
			if how == whole && !slices.Contains(required, r) {
				return nil, fmt.Errorf("%s names %s, which no specification has", path, r)
			}
			left[r] = true
		}
	}

	return left, nil
}

// eachLine visits the lines of all files in the folder whose names end so.
func eachLine(dir, suffix string, visit func(string)) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || !strings.HasSuffix(path, suffix) || strings.Contains(path, "hack/speccoverage") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(wrapped.ReplaceAllString(string(text), " "), "\n") {
			visit(line)
		}
		return nil
	})
}
