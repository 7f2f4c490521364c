package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/racetest"
)

// subsetTemplates are documents as objects have them: with fields that nobody here knows, of the wrong form, and of CloneSets.
var subsetTemplates = []string{"null", `{}`, `"broken"`, `{"cloneSetTemplate":[]}`, `{"cloneSetTemplate":{"spec":7}}`,
	`{"deploymentTemplate":{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":12345678901234567890,"future":1.50}},"x":1.50}`,
	`{"statefulSetTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"a<b"}]}}}}}`,
	`{"cloneSetTemplate":{"spec":{"future":1.50,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"20%","future":1}}}}}`}

func unitedFiller(seed int64, templates ...string) *randfill.Filler {
	templates = append(templates, subsetTemplates...)
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).Funcs(
		func(o *metav1.TypeMeta, _ randfill.Continue) { *o = metav1.TypeMeta{} },
		func(o *metav1.FieldsV1, _ randfill.Continue) { *o = *metav1.NewFieldsV1(`{}`) },
		func(o *SubsetTemplate, c randfill.Continue) {
			_ = o.UnmarshalJSON([]byte(templates[c.Intn(len(templates))]))
		},
		func(o *v1beta1.SubsetTemplate, c randfill.Continue) {
			_ = o.UnmarshalJSON([]byte(subsetTemplates[c.Intn(len(subsetTemplates))]))
		},
		func(o *runtime.RawExtension, c randfill.Continue) {
			*o = runtime.RawExtension{}
			if c.Bool() {
				o.Raw = []byte(`{"spec":{"future":1.50}}`)
			}
		},
		func(o *intstr.IntOrString, c randfill.Continue) {
			*o = intstr.Parse([]string{"5", "0", "30%", "x"}[c.Intn(4)])
		},
		func(o *v1beta1.UnitedDeploymentSubsetStatus, c randfill.Continue) {
			c.FillNoCustom(o)
			o.Name = []string{"", "a", "b", "c"}[c.Intn(4)]
		},
		func(o *map[string]int32, c randfill.Continue) {
			*o = nil
			for _, name := range []string{"a", "b", "d"} {
				if c.Bool() {
					if *o == nil {
						*o = map[string]int32{}
					}
					(*o)[name] = c.Int31()
				}
			}
		},
	)
}

// UD-150, UD-153: from v1beta1 and back nothing is lost and no annotation is written; from v1alpha1 everything arrives, and comes back the same
// however often. Inputs stay as they are.
func TestConversionOfUnitedDeploymentsLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	old := []string{`{"cloneSetTemplate":{"spec":{"updateStrategy":{"type":"InPlaceOnly","partition":2,"future":1.50}}}}`}
	for seed := range int64(2000) {
		beta := &v1beta1.UnitedDeployment{}
		unitedFiller(seed).Fill(beta)
		before := beta.DeepCopy()
		alpha := UnitedDeploymentFromV1beta1(beta)
		seen := alpha.DeepCopy()
		if diff := cmp.Diff(asJSON(t, before), asJSON(t, alpha.ToV1beta1())); diff != "" {
			t.Fatalf("seed %d: v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(asJSON(t, before), asJSON(t, beta)) + cmp.Diff(asJSON(t, seen), asJSON(t, alpha)); diff != "" {
			t.Fatalf("seed %d: an input was changed:\n%s", seed, diff)
		}
		if !reflect.DeepEqual(alpha.ObjectMeta, beta.ObjectMeta) || !reflect.DeepEqual(alpha.Spec.UnitedDeploymentScheme,
			beta.Spec.UnitedDeploymentScheme) || string(encode(alpha.Spec.Template)) != string(encode(beta.Spec.Template)) {
			t.Fatalf("seed %d: metadata or spec differ", seed)
		}

		given := &UnitedDeployment{}
		unitedFiller(seed, old...).Fill(given)
		seen = given.DeepCopy()
		up := given.ToV1beta1()
		if diff := cmp.Diff(asJSON(t, seen), asJSON(t, given)); diff != "" {
			t.Fatalf("seed %d: the input was changed:\n%s", seed, diff)
		}
		if diff := cmp.Diff(asJSON(t, up), asJSON(t, UnitedDeploymentFromV1beta1(up).ToV1beta1())); diff != "" {
			t.Fatalf("seed %d: v1alpha1 -> v1beta1 -> v1alpha1 -> v1beta1:\n%s", seed, diff)
		}
		down := UnitedDeploymentFromV1beta1(up)
		for name, replicas := range given.Status.SubsetReplicas {
			if down.Status.SubsetReplicas[name] != replicas {
				t.Fatalf("seed %d: subsetReplicas of %s: %d, want %d", seed, name, down.Status.SubsetReplicas[name], replicas)
			}
		}
	}
}

func asJSON(t *testing.T, object any) any {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// UD-151: the maps win over the list, and entries that it lacks are appended.
func TestStatusOfV1alpha1ComesIntoTheList(t *testing.T) {
	got := fromJSON[UnitedDeployment](t, `{"status":{"subsetReplicas":{"a":3,"c":1},"subsetStatuses":[{"name":"a","replicas":9,"readyReplicas":2,"partition":8},{"name":"b","partition":4}],
		"updateStatus":{"updatedRevision":"r2","currentPartitions":{"a":1,"d":2}}}}`).ToV1beta1().Status
	want := []v1beta1.UnitedDeploymentSubsetStatus{{Name: "a", Replicas: 3, ReadyReplicas: 2, Partition: 1}, {Name: "b", Partition: 4},
		{Name: "c", Replicas: 1}, {Name: "d", Partition: 2}}
	if diff := cmp.Diff(want, got.SubsetStatuses); diff != "" || got.UpdatedRevision != "r2" {
		t.Errorf("revision %q\n%s", got.UpdatedRevision, diff)
	}
}

// UD-152: every named subset is in both maps; updateStatus and the maps are absent if they would be empty.
func TestStatusOfV1beta1IsShownInMaps(t *testing.T) {
	for given, want := range map[string]string{
		`{}`: `{}`,
		`{"subsetStatuses":[{"name":"a","replicas":3,"partition":1},{"name":"b"},{"replicas":7}],"updatedRevision":"r"}`: `{"subsetReplicas":{"a":3,"b":0},"updateStatus":{"updatedRevision":"r","currentPartitions":{"a":1,"b":0}}}`,
		`{"subsetStatuses":[{"name":"a"}]}`:     `{"subsetReplicas":{"a":0},"updateStatus":{"currentPartitions":{"a":0}}}`,
		`{"subsetStatuses":[{"replicas":7}]}`:   `{"updateStatus":{}}`,
		`{"updatedRevision":"r","replicas":12}`: `{"updateStatus":{"updatedRevision":"r"}}`,
	} {
		in := fromJSON[v1beta1.UnitedDeployment](t, `{"status":`+given+`}`)
		got := UnitedDeploymentFromV1beta1(in).Status
		got.UnitedDeploymentCounters = v1beta1.UnitedDeploymentCounters{}
		if diff := cmp.Diff(*fromJSON[UnitedDeploymentStatus](t, want), got); diff != "" {
			t.Errorf("%s:\n%s", given, diff)
		}
	}
}

// UD-161 (part): CloneSets of the old form come to the places of v1beta1, as conversion of CloneSets brings them there; what stands in the new place
// wins, a document without old places stays byte for byte, and what nobody here knows is kept.
func TestOldFormOfCloneSetsInUnitedDeployments(t *testing.T) {
	const settings = `"partition":"60%","maxUnavailable":1,"maxSurge":"10%","paused":true,"priorityStrategy":{"orderPriority":[{"orderedKey":"k"}]},"scatterStrategy":[{"key":"a","value":"b"}],"inPlaceUpdateStrategy":{"gracePeriodSeconds":5}`
	for name, test := range map[string]struct{ given, want string }{
		"all places": {`{"updateStrategy":{"type":"InPlaceOnly",` + settings + `}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"InPlaceOnly",` + settings + `}}}`},
		"no type": {`{"updateStrategy":{"partition":1}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","partition":1}}}`},
		"the type alone": {`{"updateStrategy":{"type":"ReCreate"}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate"}}}`},
		"in place if possible": {`{"updateStrategy":{"type":"InPlaceIfPossible"}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible"}}}`},
		"OnDelete keeps its pace": {`{"updateStrategy":{"type":"OnDelete","maxSurge":1}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"OnDelete","rollingUpdate":{"maxSurge":1}}}`},
		"the new place wins": {`{"updateStrategy":{"type":"InPlaceOnly","partition":1,"maxSurge":2,"rollingUpdate":{"podUpdatePolicy":"ReCreate","partition":5,"future":1}}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","partition":5,"future":1,"maxSurge":2}}}`},
		"null is nothing": {`{"updateStrategy":{"partition":null,"maxSurge":1,"rollingUpdate":{"maxSurge":null}}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","maxSurge":1}}}`},
		"no reuse": {`{"scaleStrategy":{"disablePVCReuse":true,"maxUnavailable":1}}`,
			`{"scaleStrategy":{"enablePVCReuse":false,"maxUnavailable":1}}`},
		"reuse said in the old way, beside the default of the new place": {`{"scaleStrategy":{"disablePVCReuse":false,"enablePVCReuse":false}}`,
			`{"scaleStrategy":{"enablePVCReuse":true}}`},
		"reuse in the new place wins": {`{"scaleStrategy":{"disablePVCReuse":true,"enablePVCReuse":true}}`,
			`{"scaleStrategy":{"enablePVCReuse":true}}`},
		"the old form reuses claims": {`{"scaleStrategy":{"enablePVCReuse":false},"updateStrategy":{"maxSurge":1}}`,
			`{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","maxSurge":1}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			wrap := func(spec string) string {
				return `{"cloneSetTemplate":{"metadata":{"labels":{"a":"b"}},"spec":{"future":1.50,` + spec[1:] + `},"x":1.50}`
			}
			in := fromJSON[UnitedDeployment](t, `{"spec":{"template":`+wrap(test.given)+`}}`)
			got := in.ToV1beta1().Spec.Template
			if diff := cmp.Diff(asJSON(t, json.RawMessage(wrap(test.want))), asJSON(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.CloneSetTemplate == nil {
				t.Fatalf("it does not fit the types: %v", got.DecodeError())
			}
			// What a CloneSet of v1alpha1 with these settings becomes is the same, where the new places are empty.
			clone := fromJSON[CloneSet](t, `{"spec":`+test.given+`}`)
			if in.Spec.Template.CloneSetTemplate.Spec.UpdateStrategy.RollingUpdate == nil &&
				!in.Spec.Template.CloneSetTemplate.Spec.ScaleStrategy.EnablePVCReuse {
				beta := clone.ToV1beta1().Spec
				strategy := got.CloneSetTemplate.Spec.UpdateStrategy
				if strategy.Type != "" && !cmp.Equal(beta.UpdateStrategy, strategy) ||
					!cmp.Equal(beta.ScaleStrategy, got.CloneSetTemplate.Spec.ScaleStrategy) {
					t.Errorf("a CloneSet becomes %+v %+v", beta.UpdateStrategy, beta.ScaleStrategy)
				}
			}
		})
	}
	for _, text := range subsetTemplates {
		if got := string(ModernSubsetTemplate([]byte(text))); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}
