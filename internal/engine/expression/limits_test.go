package expression

import (
	"errors"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// An expression that is as long, as large or as deep as the bounds allow is parsed; one that exceeds a bound
// by one is refused.
func TestTheBoundsThemselvesAreAllowed(t *testing.T) {
	for name, text := range map[string]string{
		"length":                  "1" + strings.Repeat(" ", maxLength-1),
		"exponent":                "1e100",
		"depth":                   strings.Repeat("(", maxDepth-1) + "1" + strings.Repeat(")", maxDepth-1),
		"many values in a row":    "1" + strings.Repeat("+1", 2*maxDepth),
		"many brackets in a row":  "1" + strings.Repeat("+(1)", 2*maxDepth),
		"a negative exponent, 0":  "1e-0",
		"an exponent of a dot":    "1.e+2",
		"a sum with e in a name":  "max(1,2)+1",
		"a unit that ends as e-1": "1e3-1",
	} {
		if _, err := Parse(text, CPU); err != nil {
			t.Errorf("parsing what is within the bounds, %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"length": "1" + strings.Repeat(" ", maxLength), "exponent": "1e101",
		"depth": strings.Repeat("(", maxDepth) + "1" + strings.Repeat(")", maxDepth)} {
		if _, err := Parse(text, CPU); err == nil {
			t.Errorf("%s is not bounded", name)
		}
	}
}

// The error of a mistake says at which character it is, counted from 1.
func TestAMistakeIsReportedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"cpu 2":         `unexpected "2" at character 5`,
		"1+cpu^2":       "unexpected character '^' at character 6",
		"cpu*cpu":       "multiplication of two quantities at character 4",
		"10/cpu":        "division by quantity at character 3",
		"cpu/0":         "division by zero at character 4",
		"1+max(1)":      "max takes two arguments, found 1 at character 3",
		"1+a":           "undefined variable: a",
		"1+z":           "undefined variable: z",
		"1+A":           "undefined variable: A",
		"1+Z":           "undefined variable: Z",
		"1e+":           "malformed number",
		"1e-":           "malformed number",
		"1e 5":          "malformed number",
		"e-1":           "undefined variable: e",
		"2.e-x":         "malformed number",
		"max(1,2)(3)":   `unexpected "(" at character 9`,
		"memory/memory": "undefined variable: memory",
	} {
		if _, err := Parse(text, CPU); err == nil {
			t.Errorf("parsing %q: no error, want one with %q", text, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("parsing %q: got error %v, want one with %q", text, err, want)
		}
	}
}

// SS-141 (part): the largest result that a quantity can hold is valid, also in an expression without the
// variable.
func TestTheLargestResult(t *testing.T) {
	e, err := Parse("memory", Memory)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Evaluate(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)); err != nil {
		t.Errorf("the largest result: %v", err)
	} else if got.Value() != math.MaxInt64 {
		t.Errorf("the largest result: got %s, want %d", got.String(), math.MaxInt64)
	}
	over, err := Parse("memory+1", Memory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := over.Evaluate(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte too many: got error %v, want %v", err, ErrTooLarge)
	}
	constant, err := Parse("1+2Gi", Memory)
	if err != nil {
		t.Fatal(err)
	}
	if e.Constant() {
		t.Error("an expression with the variable is taken for a constant")
	}
	if !constant.Constant() {
		t.Error("an expression without the variable is not taken for a constant")
	}
}

// SS-141 (part): a number of bytes that is as short in thousands as in powers of 1024 is written in
// thousands.
func TestBytesInThousandsIfThatIsNoLonger(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1Ki", 5000: "5k", 1024000: "1024k", 10112000: "10112k"} {
		got := bytes(n)
		if got.String() != want {
			t.Errorf("%d bytes are %s, want %s", n, got.String(), want)
		}
	}
}
