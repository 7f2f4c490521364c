package podcounter

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter/v1alpha1"
)

// Validate returns what is wrong with a PodCounter.
func Validate(counter *v1alpha1.PodCounter) field.ErrorList {
	return fieldcheck.RequiredSelector(counter.Spec.Selector, field.NewPath("spec", "selector"))
}
