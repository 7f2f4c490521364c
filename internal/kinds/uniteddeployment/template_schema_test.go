package uniteddeployment

import (
	"maps"
	"reflect"
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
)

// UD-017: in both versions StatefulSets of our own have the type of v1beta1, and CloneSets have each of its
// fields; what v1alpha1 has beside these are the places that moved.
func TestEmbeddedKindsHaveTheShapeOfV1beta1(t *testing.T) {
	field := func(t reflect.Type, name string) reflect.Type {
		f, _ := t.FieldByName(name)
		return f.Type
	}
	alpha, beta := reflect.TypeFor[appsv1alpha1.SubsetTemplateSpec](), reflect.TypeFor[appsv1beta1.SubsetTemplateSpec]()
	got, want := field(alpha, "AdvancedStatefulSetTemplate"), field(beta, "AdvancedStatefulSetTemplate")
	if got != want {
		t.Errorf("template of the Advanced StatefulSet in v1alpha1: got %v, want %v", got, want)
	}
	spec := reflect.TypeFor[appsv1beta1.StatefulSetSpec]()
	if got := field(got.Elem(), "Spec"); got != spec {
		t.Errorf("spec of the Advanced StatefulSet: got %v, want %v", got, spec)
	}
	spec = reflect.TypeFor[appsv1beta1.CloneSetSpec]()
	if got := field(field(beta, "CloneSetTemplate").Elem(), "Spec"); got != spec {
		t.Errorf("spec of the CloneSet: got %v, want %v", got, spec)
	}
	more := map[string]bool{"spec.scaleStrategy.disablePVCReuse": true}
	for _, key := range appsv1alpha1.MovedInUnitedDeployments {
		more["spec.updateStrategy."+key] = true
	}
	var compare func(old, now reflect.Type, path string)
	compare = func(old, now reflect.Type, path string) {
		old, now = jsonfields.Elem(old), jsonfields.Elem(now)
		if old == now || old.Kind() != reflect.Struct || jsonfields.Decodes(old) {
			if old != now {
				t.Errorf("%s is %s and %s", path, old, now)
			}
			return
		}
		fields := maps.Clone(jsonfields.Of(old))
		for key, of := range jsonfields.Of(now) {
			if fields[key] == nil {
				t.Errorf("%s.%s is missing in v1alpha1", path, key)
				continue
			}
			compare(fields[key], of, path+"."+key)
			delete(fields, key)
		}
		for key := range fields {
			if !more[path+"."+key] {
				t.Errorf("%s.%s is in v1alpha1 alone", path, key)
			}
			delete(more, path+"."+key)
		}
	}
	compare(reflect.TypeFor[appsv1alpha1.UnitedCloneSetSpec](), reflect.TypeFor[appsv1beta1.CloneSetSpec](), "spec")
	if len(more) > 0 {
		t.Errorf("not there: %v", more)
	}
}
