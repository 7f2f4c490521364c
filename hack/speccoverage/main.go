// Command speccoverage compares the requirements of docs/spec with the tests that cite them.
//
// A test cites a requirement by its number in a name or a comment: CS-081 or, for a run of numbers, "CS-040 to 046". Without
// arguments every specification file is reported; with prefixes (CS IPU) only these, with the numbers that no test cites.
package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	definition = regexp.MustCompile(`^- ([A-Z]+)-(\d+)\b`)
	citation   = regexp.MustCompile(`\b([A-Z]{2,5})[-_](\d{2,3})\b((?:(?:,| and| to|-)\s*(?:[A-Z]{2,5}-)?\d{2,3}\b)*)`)
	further    = regexp.MustCompile(`(,| and| to|-)\s*(?:([A-Z]{2,5})-)?(\d{2,3})`)
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(prefixes []string) error {
	required, err := requirements("docs/spec")
	if err != nil {
		return err
	}
	cited, err := citations(".")
	if err != nil {
		return err
	}
	names := make([]string, 0, len(required))
	for prefix := range required {
		if len(prefixes) == 0 || slices.Contains(prefixes, prefix) {
			names = append(names, prefix)
		}
	}
	slices.Sort(names)
	for _, prefix := range names {
		var missing []string
		for _, number := range required[prefix] {
			if !cited[key(prefix, number)] {
				missing = append(missing, fmt.Sprintf("%03d", number))
			}
		}
		total := len(required[prefix])
		fmt.Printf("%-5s %3d of %3d requirements cited by a test (%d %%)\n", prefix, total-len(missing), total, 100*(total-len(missing))/total)
		if len(prefixes) > 0 {
			fmt.Printf("      none cites: %s\n", strings.Join(missing, " "))
		}
	}
	return nil
}

func key(prefix string, number int) string { return fmt.Sprintf("%s-%03d", prefix, number) }

// requirements returns the numbers that the specification defines, by prefix.
func requirements(dir string) (map[string][]int, error) {
	found := map[string][]int{}
	err := eachLine(dir, ".md", func(line string) {
		if m := definition.FindStringSubmatch(line); m != nil {
			if number, err := strconv.Atoi(m[2]); err == nil && !slices.Contains(found[m[1]], number) {
				found[m[1]] = append(found[m[1]], number)
			}
		}
	})
	return found, err
}

// citations returns the requirements that test files cite.
func citations(dir string) (map[string]bool, error) {
	cited := map[string]bool{}
	err := eachLine(dir, "_test.go", func(line string) {
		for _, m := range citation.FindAllStringSubmatch(line, -1) {
			prefix := m[1]
			last, _ := strconv.Atoi(m[2])
			cited[key(prefix, last)] = true
			for _, f := range further.FindAllStringSubmatch(m[3], -1) {
				next, _ := strconv.Atoi(f[3])
				from := next
				if (f[1] == " to" || f[1] == "-") && (f[2] == "" || f[2] == prefix) {
					from = last
				}
				if f[2] != "" {
					prefix = f[2] // "CS-018, OPS-060" cites two specifications
				}
				for number := from; number <= next; number++ {
					cited[key(prefix, number)] = true
				}
				last = next
			}
		}
	})
	return cited, err
}

func eachLine(dir, suffix string, visit func(string)) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		scanner := bufio.NewScanner(file)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			visit(scanner.Text())
		}
		if err := scanner.Err(); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		return nil
	})
}
