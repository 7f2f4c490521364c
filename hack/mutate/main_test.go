package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A package with one mutant of every kind, and the expected result of its tests for each.
const sample = `package sample

import "time"

type Count int32

const Most = 2 * 3 // must stay a constant

func Over(n Count) bool { return n > Most }

func Left(n Count) Count { return Most - n - 1 }

func Same(name string) bool { return "the "+name == "the end" }

func Pairs(all []int) (out []int) {
	for i := 0; i < len(all)/2; i++ {
		out = append(out, -all[i])
	}
	return out
}

func Unseen(n int) int { return n * n }

func Never() time.Duration { return -1 }

func Equal(a int) int {
	if a < 0 {
		return -a
	}
	return a
}
`

const sampleTests = `package sample

import "testing"

func TestAll(t *testing.T) {
	if Over(6) || !Over(7) || Left(1) != 4 || !Same("end") || Same("start") || Never() > 0 {
		t.Fail()
	}
	if got := Pairs([]int{1, 2, 3, 4}); len(got) != 2 || got[1] != -2 {
		t.Fail()
	}
}

func TestEqual(t *testing.T) {
	if Equal(-2) != 2 || Equal(0) != 0 || Equal(2) != 2 {
		t.Fail()
	}
}

func TestSimulatedAlways(t *testing.T) { Unseen(1) }
`

func TestEveryMutantHasItsOutcome(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\ngo 1.26\n", "sample.go": sample, "sample_test.go": sampleTests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	source, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	binary, mutants, err := source.build(scratch, regexp.MustCompile(""), source)
	if err != nil {
		t.Fatal(err)
	}
	suite := suite{binary: binary, source: dir, scratch: scratch}
	if err := suite.learn(regexp.MustCompile("^TestSimulated"), false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mutants {
		outcome := "NOT COVERED"
		if suite.reached(m) {
			outcome = suite.outcome(m)
		}
		line := strings.Split(sample, "\n")[m.position.Line-1]
		got = append(got, outcome+" "+m.kind+" "+strings.TrimSpace(line[m.position.Column-1:]))
	}
	want := []string{
		"KILLED BOUNDARY > Most }", "KILLED NEGATION > Most }", "KILLED ARITHMETIC - 1 }", "KILLED ARITHMETIC - n - 1 }",
		`KILLED NEGATION == "the end" }`,
		"KILLED BOUNDARY < len(all)/2; i++ {", "KILLED NEGATION < len(all)/2; i++ {", "KILLED ARITHMETIC /2; i++ {", "KILLED STEP ++ {",
		"KILLED SIGN -all[i])",
		"NOT COVERED ARITHMETIC * n }", "KILLED SIGN -1 }", "LIVED BOUNDARY < 0 {", "KILLED NEGATION < 0 {", "KILLED SIGN -a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 3 {
		t.Errorf("the source has %v, %v", left, err)
	}
}
