package set

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// FuzzParseQuantities: quantities that can be read are quantities, and are read again as the same after
// they were written.
func FuzzParseQuantities(f *testing.F) {
	for _, text := range []string{"cpu=100m,memory=256Mi", "cpu=0", "cpu=", "=1", "cpu=1=2", "cpu=1e3,cpu=2",
		"memory=-1", ",", "a=9999999999999999999999E"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quantities, err := parseQuantities(text)
		if err != nil {
			return
		}
		var statements []string
		for _, name := range slices.Sorted(maps.Keys(quantities)) {
			if _, err := resource.ParseQuantity(fmt.Sprint(quantities[name])); err != nil || name == "" {
				t.Errorf("%q is %v, %v", text, quantities, err)
			}
			statements = append(statements, name+"="+fmt.Sprint(quantities[name]))
		}
		if again, err := parseQuantities(strings.Join(statements, ",")); err != nil || !maps.Equal(again,
			quantities) {
			t.Errorf("%q is %v, and after it was written %v, %v", text, quantities, again, err)
		}
	})
}
