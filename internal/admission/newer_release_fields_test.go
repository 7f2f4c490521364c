package admission

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/racetest"
)

// OPS-072, OPS-112, WS-183: fields of a newer release, anywhere in an object, get the path in the other
// version at which that release reads them, and return from there.
func TestFieldsOfANewerReleaseGoThereAndBack(t *testing.T) {
	racetest.SkipAlone(t)
	const rounds = 40
	// Lists that the other version keeps in an annotation, or does not have, are not made for unknown fields
	// of their items.
	dropped := map[string]string{"ContainerRecreateRequest of v1beta1": "status.", "SidecarSet of v1alpha1": "spec.namespaceSelector.",
		"StatefulSet of v1beta1": "status.volumeClaims.", "PodUnavailableBudget of v1beta1": "spec.ignoredPodSelector."}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1alpha1.AddToScheme, appsv1beta1.AddToScheme,
		policyv1alpha1.AddToScheme, policyv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for i := range Registered {
		if Registered[i].Conversion == nil {
			continue
		}
		kind, group := Registered[i].Name, Registered[i].Group
		types := [2]reflect.Type{}
		for side, version := range [2]string{framework.V1alpha1, framework.V1beta1} {
			types[side] = reflect.PointerTo(scheme.AllKnownTypes()[schema.GroupVersionKind{Group: group, Version: version, Kind: kind}])
		}
		for side, versions := range [2][2]string{{"v1alpha1", "v1beta1"}, {"v1beta1", "v1alpha1"}} {
			t.Run(kind+" of "+versions[0], func(t *testing.T) {
				for seed := range int64(rounds) {
					given, future := newer(t, group+"/"+versions[0], kind, types[side], seed)
					there := convertOne(t, webhooktest.Encoded(t, given), versions[1])
					back := convertOne(t, webhooktest.Encoded(t, there), versions[0])
					for path := range future {
						if list := dropped[kind+" of "+versions[0]]; !has(back, path) && (list == "" || !strings.HasPrefix(path, list)) {
							t.Errorf("seed %d: %s is lost", seed, path)
						}
					}
					framework.UnknownFields(there, types[1-side], nil, 0, func(path []string, _ int, _ any) {
						at := strings.Join(path, ".")
						// of CloneSets, see MovedInCloneSets; of budgets, which have the rest in an
						// annotation; of UnitedDeployments, see UD-151
						if !strings.HasPrefix(path[len(path)-1], "future") && at != "spec.updateStrategy.rollingUpdate" &&
							at != "spec.ignoredPodSelector" && at != "status.updateStatus" {
							t.Errorf("seed %d: there is %s", seed, at)
						}
					})
				}
			})
		}
	}
}

// newer is an object filled at random, with fields that its type does not have; these are returned by their
// paths.
func newer(t *testing.T, apiVersion, kind string, of reflect.Type, seed int64) (framework.Document, map[string]bool) {
	t.Helper()
	object := reflect.New(of.Elem()).Interface()
	randfill.NewWithSeed(seed).NilChance(.3).NumElements(0, 3).MaxDepth(14).Funcs(
		func(o *metav1.ObjectMeta, _ randfill.Continue) { o.Name = "x" },
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(*corev1.PodSpec, randfill.Continue) {},
		func(o *runtime.RawExtension, _ randfill.Continue) {
			o.Raw = []byte(`{"metadata":{"labels":{"a":"b"}}}`)
		},
		func(o *intstr.IntOrString, _ randfill.Continue) { *o = intstr.FromInt32(5) },
		func(o *resource.Quantity, _ randfill.Continue) { *o = resource.MustParse("5") },
	).Fill(object)
	given, err := framework.DecodeDocument([]byte(webhooktest.Encoded(t, object)))
	if err != nil {
		t.Fatal(err)
	}
	given["apiVersion"], given["kind"] = apiVersion, kind
	random, future := rand.New(rand.NewPCG(uint64(seed), 1)), map[string]bool{}
	var visit func(value any, of reflect.Type, path []string)
	visit = func(value any, of reflect.Type, path []string) {
		if of = jsonfields.Elem(of); jsonfields.Decodes(of) {
			return
		}
		switch value := value.(type) {
		case framework.Document:
			for key, member := range value {
				if inner, known := fieldOf(of, key); known && (len(path) > 0 || key != "metadata") {
					visit(member, inner, longer(path, key))
				}
			}
			if of.Kind() == reflect.Struct && len(path) > 0 && random.IntN(2) == 0 {
				key := fmt.Sprintf("future%d", len(future))
				value[key] = json.Number("1")
				future[strings.Join(longer(path, key), ".")] = true
			}
		case []any:
			for i, item := range value {
				if of.Kind() == reflect.Slice {
					visit(item, of.Elem(), longer(path, fmt.Sprint(i)))
				}
			}
		}
	}
	visit(given, of, nil)
	return given, future
}

func fieldOf(of reflect.Type, key string) (reflect.Type, bool) {
	if of.Kind() == reflect.Map {
		return of.Elem(), !strings.Contains(key, ".")
	}
	if of.Kind() != reflect.Struct {
		return nil, false
	}
	field, known := jsonfields.Of(of)[key]
	return field, known
}
