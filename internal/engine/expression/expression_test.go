package expression

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The vectors of the specification, and what follows from its sentences (SS-138, SS-139, SS-141, SS-143,
// SS-D13).
func TestExpressionsHaveTheValuesOfTheSpecification(t *testing.T) {
	cases := map[string]struct {
		variable    Variable
		value, want string
	}{
		"max(cpu*50%, 50m)":                      {CPU, "200m", "100m"},
		"max(cpu*50%, 100m)":                     {CPU, "400m", "200m"},
		"8/2/2":                                  {CPU, "0", "2"},
		"2-3+4":                                  {CPU, "0", "3"},
		"2*-3+10":                                {CPU, "0", "4"},
		"-cpu+3":                                 {CPU, "1", "2"},
		"Max(CPU, 2)":                            {CPU, "1", "2"},
		".5*cpu":                                 {CPU, "1", "500m"},
		"min(max(max(0.5,0.5*cpu),cpu-1.0),3.0)": {CPU, "600m", "500m"},
		"memory + 1e3":                           {Memory, "1Gi", "1073742824"},
		"1Gi + 100Mi":                            {Memory, "0", "1124Mi"},
		"1.5Gi * 2":                              {Memory, "0", "3Gi"},
		"0.5 * memory + max(0, memory-2Gi)":      {Memory, "4Gi", "4Gi"},
		"cpu*29%":                                {CPU, "100m", "29m"},
		"memory*33%":                             {Memory, "1Gi", "354334801"},
		"memory*50%":                             {Memory, "20P", "10P"},

		"42":                  {CPU, "0", "42"},
		"3.14":                {CPU, "0", "3140m"},
		"2.5E-1":              {CPU, "0", "250m"},
		"2.5e+1":              {CPU, "0", "25"},
		"1e3-1":               {CPU, "0", "999"},
		"007":                 {CPU, "0", "7"},
		"cpu\t-\n 1\r":        {CPU, "3", "2"},
		"2+3*4":               {CPU, "0", "14"},
		"(2+3)*4":             {CPU, "0", "20"},
		"--cpu":               {CPU, "2", "2"},
		"-(1-cpu)":            {CPU, "3", "2"},
		"cpu/3":               {CPU, "1", "333m"},
		"cpu/3*3":             {CPU, "1", "1"}, // cut at the end only
		"0.1+0.2":             {CPU, "0", "300m"},
		"MEMORY/3":            {Memory, "1Ki", "341"},
		"memory":              {Memory, "128974848", "123Mi"},
		"mIn(memory,1Mi)":     {Memory, "1Gi", "1Mi"},
		"max(5, 100m) * 2":    {CPU, "0", "10"},
		"1m+1k+1M+1G+1T+1P":   {CPU, "0", "1001001001001000001m"},
		"1Ki+1Mi+1Gi+1Ti+1Pi": {Memory, "0", "1100586419201Ki"},
		"1000":                {Memory, "0", "1k"},
		"cpu-cpu":             {CPU, "700m", "0"},
		"cpu + memory_free":   {CPU, "0", "undefined variable: memory_free"},
	}
	for text, test := range cases {
		t.Run(text, func(t *testing.T) {
			e, err := Parse(text, test.variable)
			if err != nil {
				if err.Error() != test.want {
					t.Errorf("parsing: got error %v, want %s", err, test.want)
				}
				return
			}
			got, err := e.Evaluate(resource.MustParse(test.value))
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want {
				t.Errorf("%s, not %s", got.String(), test.want)
			}
		})
	}
}

// SS-137, SS-139, SS-140, SS-142: a text that is not an expression is refused when it is parsed, whatever the
// variable is.
func TestTextsThatAreNoExpressionsAreRefused(t *testing.T) {
	cases := map[string]string{
		"cpu*cpu": "multiplication of two quantities", "100m*(1+cpu)": "multiplication of two quantities",
		"max(1,cpu)*cpu": "multiplication of two quantities",
		"10/cpu":         "division by quantity", "cpu/100m": "division by quantity", "cpu/max(1,1m)": "division by quantity",
		"cpu/0": "division by zero", "1/(2-2)": "division by zero", "1/0%": "division by zero",
		"max(1,2,3)": "max takes two arguments, found 3", "max(1)": "max takes two arguments, found 1",
		"min()": "min takes two arguments, found 0",
		"+1":    `expected a value, found "+"`, "cpu 2": `unexpected "2"`, "foo+1": "undefined variable: foo",
		"memory": "undefined variable: memory",
		"()":     `expected a value, found ")"`, "": "expected a value, found the end", " ": "expected a value, found the end",
		"(1": `expected ")", found the end`,
		"1)": `unexpected ")"`, "abs(1)": "unknown function: abs", "cpu(1)": "unknown function: cpu", "max": "undefined variable: max",
		"max(1,":   "expected a value, found the end",
		"max(1 2)": `expected ","`, "200MB": `malformed number "200MB"`, "5x": "malformed number", "1E": "malformed number",
		"1Ei": "malformed number", "5u": "malformed number", "100n": "malformed number",
		"1.2.3": "malformed number", ".": "malformed number", "1e": "malformed number", "5%%": "malformed number", "1K": "malformed number",
		"1mi": "malformed number", "1MiB": "malformed number",
		"1e101": "the exponent", "cpu % 2": "unexpected character '%'", "cpu^2": "unexpected character '^'",
		"cpü": "unexpected character 'ü'", "2cpu": "malformed number",
		strings.Repeat("(", 501) + "1": "nested", strings.Repeat("-", 501) + "1": "nested", strings.Repeat("1+", 5000) + "1": "longer",
	}
	for text, want := range cases {
		if _, err := Parse(text, CPU); err == nil {
			t.Errorf("parsing %.40q: no error, want one with %q", text, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("parsing %.40q: got error %v, want one with %q", text, err, want)
		}
	}
}

// SS-137, SS-140: the sign is judged for the value at hand only.
func TestTheSignIsJudgedForTheValueAtHand(t *testing.T) {
	e, err := Parse("memory - 100Mi", Memory)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Evaluate(resource.MustParse("101Mi")); err != nil {
		t.Errorf("memory - 100Mi of 101Mi: %v", err)
	} else if got.String() != "1Mi" {
		t.Errorf("memory - 100Mi of 101Mi: got %s, want 1Mi", got.String())
	}
	if _, err := e.Evaluate(resource.MustParse("1Mi")); !errors.Is(err, ErrNegative) {
		t.Errorf("memory - 100Mi of 1Mi: got error %v, want %v", err, ErrNegative)
	} else if want := "calculation result is negative: -103809024"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("memory - 100Mi of 1Mi: got error %v, want %s", err, want)
	}
	if e, err = Parse("cpu-2", CPU); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Evaluate(resource.MustParse("1")); !errors.Is(err, ErrNegative) {
		t.Errorf("cpu-2 of 1: got error %v, want %v", err, ErrNegative)
	}
	if e, err = Parse("cpu*1e20", CPU); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Evaluate(resource.MustParse("1")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("cpu*1e20 of 1: got error %v, want %v", err, ErrTooLarge)
	}
}

// FuzzParse: no text makes it panic, the case of names does not matter, and a result is the exact value, cut.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"max(cpu*50%, 50m)", "0.5 * cpu + max(0, cpu-2Gi)", "2.5E-1/(1-1)", "-(-cpu)", "1e100*1e100*cpu",
		"1e-100*cpu", "((", "5x", "1e+"} {
		f.Add(text, int64(1500))
	}
	f.Fuzz(func(t *testing.T, text string, milli int64) {
		e, err := Parse(text, CPU)
		if err != nil {
			return
		}
		value := *resource.NewMilliQuantity(milli, resource.DecimalSI)
		got, err := e.Evaluate(value)
		exactly := e.root.evaluate(exact(value))
		switch {
		case err != nil && !errors.Is(err, ErrNegative) && !errors.Is(err, ErrTooLarge):
			t.Errorf("%q of %s: got error %v, want none, a negative or a too large result",
				text, value.String(), err)
		case err == nil:
			rest := new(big.Rat).Sub(exactly, exact(got))
			if rest.Sign() < 0 {
				t.Errorf("%q of %s: got %s, want %s at most", text, value.String(), got.String(), exactly)
			}
			if rest.Cmp(big.NewRat(1, 1000)) >= 0 {
				t.Errorf("%q of %s: got %s, want %s, cut to thousandths",
					text, value.String(), got.String(), exactly)
			}
		}
		again, err := Parse(strings.ReplaceAll(strings.ReplaceAll(text, "cpu", "CPU"), "max", "MAX"), CPU)
		if err != nil {
			t.Errorf("parsing %q in capitals: %v", text, err)
		} else if value := again.root.evaluate(exact(value)); value.Cmp(exactly) != 0 {
			t.Errorf("%q in capitals: got %s, want %s", text, value, exactly)
		}
	})
}
