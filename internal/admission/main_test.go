package admission_test

import (
	"os"
	"testing"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/registry"
)

// The registry imports this package, so the external test package passes the kinds to the tests.
func TestMain(m *testing.M) {
	admission.Registered = registry.Kinds
	os.Exit(m.Run())
}
