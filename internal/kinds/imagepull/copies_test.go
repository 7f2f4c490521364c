package imagepull

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// IMG-122 (part): the name of a copy tells for whom it may be; that of another secret does not.
func TestNamesOfCopiesTellForWhomTheyAre(t *testing.T) {
	for _, test := range []struct {
		name       string
		namespaces []string
		want       bool
	}{
		{"login-0123456789abcdef" + CopyMark("shop"), []string{"shop"}, false},
		{"login-0123456789abcdef" + CopyMark("shop"), []string{"mall", "shop"}, false},
		{"login-0123456789abcdef" + CopyMark("shop"), []string{"mall"}, true},
		{"login-0123456789abcdef" + CopyMark("shop"), []string{"config"}, false}, // somebody named a secret so
		{"login-0123456789abcdef" + CopyMark("shop"), nil, false},
		{"login-0123456789abcdef", []string{"mall"}, false},
		{"login-0a1b2c", []string{"mall"}, false},
	} {
		if got := CopyOfOthers(types.NamespacedName{Namespace: "config", Name: test.name}, test.namespaces); got != test.want {
			t.Errorf("%s, for jobs of %q: got %t, want %t", test.name, test.namespaces, got, test.want)
		}
	}
}
