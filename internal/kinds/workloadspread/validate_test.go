package workloadspread

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// spreadOf reads a WorkloadSpread of name "shop" for CloneSet web from YAML of its spec.
func spreadOf(t interface {
	Helper()
	Fatal(...any)
}, spec string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	s := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "shop-uid",
		ResourceVersion: "1", Generation: 1}}
	s.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web"}
	if err := yaml.UnmarshalStrict([]byte(spec), &s.Spec); err != nil {
		t.Fatal(err)
	}
	return s
}

// WS-031 to WS-045, WS-199: each with its field.
func TestValidate(t *testing.T) {
	const two = `subsets: [{name: a, maxReplicas: 5}, {name: b}]`
	custom := schema.GroupVersionKind{Group: "kubeflow.org", Kind: "TFJob"}
	other := *spreadOf(t, two)
	other.Name = "other"
	other.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "taken"}
	leaving := *other.DeepCopy()
	leaving.Name, leaving.Spec.TargetReference.Name, leaving.DeletionTimestamp = "leaving", "free", &metav1.Time{Time: time.Unix(1, 0)}
	adaptive := func(seconds, subsets string) string {
		return `{scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: ` + seconds + `}}, subsets: [` + subsets + `]}`
	}
	for name, tt := range map[string]struct {
		spec string
		// fields that are wrong, none if it is good; text is in what is said.
		fields []string
		text   string
		change func(*appsv1beta1.WorkloadSpread, *Environment)
	}{
		"good": {spec: two},
		"WS-031 no target": {two, []string{"spec.targetRef"}, "one workload",
			func(s *appsv1beta1.WorkloadSpread, _ *Environment) {
				s.Spec.TargetReference = nil
			}},
		"WS-031 no name": {`{targetRef: {apiVersion: apps/v1, kind: Deployment, name: ""}, ` + two + `}`,
			[]string{"spec.targetRef"}, "must not be empty", nil},
		"WS-032 a Deployment of another group": {`{targetRef: {apiVersion: extensions/v1beta1, kind: Deployment, name: web}, ` + two +
			`}`, []string{"spec.targetRef"}, "must be apps", nil},
		"WS-032 a StatefulSet of another group": {`{targetRef: {apiVersion: x/v1, kind: StatefulSet, name: web}, ` + two + `}`,
			[]string{"spec.targetRef"}, "apps or apps.kruise.io", nil},
		"WS-032 an Advanced StatefulSet": {spec: `{targetRef: {apiVersion: apps.kruise.io/v1alpha1, kind: StatefulSet, name: web}, ` + two +
			`}`},
		"WS-013 any version": {spec: `{targetRef: {apiVersion: batch/v1beta1, kind: Job, name: web}, ` + two + `}`},
		"WS-032 an unknown kind": {`{targetRef: {apiVersion: x/v1, kind: Thing, name: web}, ` + two + `}`,
			[]string{"spec.targetRef"}, "not listed", nil},
		"WS-024 a listed kind": {spec: `{targetRef: {apiVersion: kubeflow.org/v1, kind: TFJob, name: web}, ` + two +
			`}`},
		"WS-027 a list that cannot be read": {`{targetRef: {apiVersion: x/v1, kind: Thing, name: web}, ` + two + `}`,
			[]string{"spec.targetRef"}, "Internal error", func(_ *appsv1beta1.WorkloadSpread,
				e *Environment) {
				e.ListError = errors.New("broken")
			}},
		"WS-027 and a supported kind": {spec: two, change: func(_ *appsv1beta1.WorkloadSpread,
			e *Environment) {
			e.ListError = errors.New("broken")
		}},
		"WS-033 no subsets": {`{}`, []string{"spec.subsets"}, "at least one", nil},
		"WS-033 one subset": {spec: `subsets: [{name: a}]`},
		"WS-034 no name and one twice": {`subsets: [{name: a}, {name: ""}, {name: a}]`, []string{"spec.subsets[1].name",
			"spec.subsets[2].name"}, "", nil},
		"WS-034 any name":                 {spec: `subsets: [{name: "Zone A/1"}]`},
		"WS-034 the longest name":         {spec: `subsets: [{name: ` + strings.Repeat("a", 63) + `}]`},
		"WS-034 a longer name":            {`subsets: [{name: ` + strings.Repeat("a", 64) + `}]`, []string{"spec.subsets[0].name"}, "63 bytes", nil},
		"WS-035 (part) many requirements": {spec: `subsets: [{name: a, requiredNodeSelector: {matchExpressions: [` + strings.Repeat(`{key: a, operator: Exists},`, 200) + `]}}]`},
		"WS-035 (part) too many": {`subsets: [{name: a, requiredNodeSelector: {matchExpressions: [` + strings.Repeat(`{key: a, operator: Exists},`, 201) + `]}}]`,
			[]string{"spec.subsets[0].requiredNodeSelector"}, "at most 200", nil},
		"WS-036 numbers and percentages":      {`subsets: [{name: a, maxReplicas: 5}, {name: b, maxReplicas: "50%"}, {name: c, maxReplicas: "50%"}, {name: d}]`, []string{"spec.subsets[1].maxReplicas"}, "all percentages", nil},
		"WS-036 percentages of a StatefulSet": {`{targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}, subsets: [{name: a, maxReplicas: "50%"}, {name: b}]}`, []string{"spec.subsets[0].maxReplicas"}, "StatefulSet", nil},
		"WS-037 negative": {`subsets: [{name: a, maxReplicas: -1}, {name: b}]`,
			[]string{"spec.subsets[0].maxReplicas"}, "negative", nil},
		"WS-037 half a percent": {`subsets: [{name: a, maxReplicas: "0.5%"}, {name: b}]`,
			[]string{"spec.subsets[0].maxReplicas"}, "integer percentage", nil},
		"WS-037 more than all": {`subsets: [{name: a, maxReplicas: "60%"}, {name: b, maxReplicas: "60%"}, {name: c, maxReplicas: "60%"}]`,
			[]string{"spec.subsets[1].maxReplicas"}, "more than 100 %", nil},
		"WS-037 less than all": {`subsets: [{name: a, maxReplicas: "30%"}, {name: b, maxReplicas: "30%"}]`,
			[]string{"spec.subsets[0].maxReplicas"}, "less than 100 %", nil},
		"WS-037 less than all, the last takes more": {spec: `subsets: [{name: a, maxReplicas: "30%"}, {name: b}]`},
		"WS-037 all": {spec: `subsets: [{name: a, maxReplicas: "30%"}, {name: b, maxReplicas: "70%"}]`},
		"WS-037 the first has none": {`subsets: [{name: a}, {name: b, maxReplicas: "70%"}]`,
			[]string{"spec.subsets[0].maxReplicas"}, "less than 100 %", nil},
		"WS-038 a type": {`{scheduleStrategy: {type: Sometimes}, ` + two + `}`,
			[]string{"spec.scheduleStrategy.type"}, "Fixed or Adaptive", nil},
		"WS-039 options of another type": {`{scheduleStrategy: {adaptive: {}}, ` + two + `}`,
			[]string{"spec.scheduleStrategy.type"}, "must be Adaptive", nil},
		"WS-018, WS-038 adaptive": {spec: `{scheduleStrategy: {type: Adaptive, adaptive: {disableSimulationSchedule: true}}, ` + two + `}`},
		"WS-040 the last is limited": {adaptive("60", `{name: a, maxReplicas: 1}, {name: b, maxReplicas: 1}`),
			[]string{"spec.scheduleStrategy.adaptive"}, "must have no maxReplicas", nil},
		"WS-040 one limited subset":    {spec: adaptive("60", `{name: a, maxReplicas: 1}`)},
		"WS-041 two subsets, the most": {spec: adaptive("295", `{name: a}, {name: b}`)},
		"WS-041 two subsets, too long": {adaptive("296", `{name: a}, {name: b}`),
			[]string{"spec.scheduleStrategy.adaptive.rescheduleCriticalSeconds"}, "from 0 to 295", nil},
		"WS-041 three subsets": {adaptive("148", `{name: a}, {name: b}, {name: c}`),
			[]string{"spec.scheduleStrategy.adaptive.rescheduleCriticalSeconds"}, "from 0 to 147", nil},
		"WS-041 four subsets": {adaptive("99", `{name: a}, {name: b}, {name: c}, {name: d}`),
			[]string{"spec.scheduleStrategy.adaptive.rescheduleCriticalSeconds"}, "from 0 to 98", nil},
		"WS-041 one subset": {spec: adaptive("2147483647", `{name: a}`)},
		"WS-041 negative": {adaptive("-1", `{name: a}`),
			[]string{"spec.scheduleStrategy.adaptive.rescheduleCriticalSeconds"}, "from 0", nil},
		"WS-199 a longer window": {spec: adaptive("297", `{name: a}, {name: b}, {name: c}`),
			change: func(_ *appsv1beta1.WorkloadSpread, e *Environment) { e.Window = 600 * time.Second }},
		"WS-042 a long selector": {`{targetFilter: {selector: {matchExpressions: [{key: a, operator: NotIn, values: [v` + strings.Repeat(",v", 199) +
			`]}]}}, ` + two + `}`, []string{"spec.targetFilter.selector"}, "at most 200", nil},
		"WS-015 a long path": {`{targetFilter: {replicasPathList: [a, ` + strings.Repeat("x", 501) + `]}, ` + two + `}`,
			[]string{"spec.targetFilter.replicasPathList[1]"}, "500 bytes", nil},
		"WS-015 many paths": {`{targetFilter: {replicasPathList: [a` + strings.Repeat(",a", 100) + `]}, ` + two + `}`,
			[]string{"spec.targetFilter.replicasPathList"}, "at most 100", nil},
		"WS-042 a selector": {`{targetFilter: {selector: {matchExpressions: [{key: a, operator: Near}]}}, ` + two +
			`}`, []string{"spec.targetFilter"}, "Near", nil},
		"WS-043 spread already, by another version": {`{targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: taken}, targetFilter: {selector: {matchLabels: {a: b}}}, ` + two + `}`, []string{"spec.targetRef"}, "WorkloadSpread other", nil},
		"WS-043 by one that is leaving":             {spec: `{targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: free}, ` + two + `}`},
		"WS-045 a patch that is text": {`subsets: [{name: a, patch: text}]`, []string{"spec.subsets[0].patch"},
			"JSON object", nil},
		"WS-045 a patch of no pod": {`subsets: [{name: a, patch: {spec: {containers: 5}}}]`,
			[]string{"spec.subsets[0].patch"}, "", nil},
		"WS-048 a patch without the key of its list": {`subsets: [{name: a, patch: {spec: {containers: [{image: i}]}}}]`,
			[]string{"spec.subsets[0].patch"}, "", nil},
		"WS-017 a patch of anything": {spec: `subsets: [{name: a, patch: {metadata: {labels: {a: b}}, spec: {priorityClassName: high, hologram: 1, containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}]}}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			spread := spreadOf(t, tt.spec)
			env := Environment{Others: []appsv1beta1.WorkloadSpread{other, leaving, *spread},
				Listed: AllowList{Workloads: []CustomKind{{GroupVersionKind: custom}}}, Window: UnschedulableWindow}
			if tt.change != nil {
				tt.change(spread, &env)
			}
			errs := Validate(spread, nil, env)
			var fields []string
			for _, err := range errs {
				fields = append(fields, err.Field)
			}
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Fatalf("refused fields (-want +got):\n%s%v", diff, errs)
			}
			if len(errs) > 0 && !strings.Contains(errs.ToAggregate().Error(), tt.text) {
				t.Errorf("refused: got %v, want %q in it", errs, tt.text)
			}
		})
	}
}

// WS-044
func TestValidateUpdate(t *testing.T) {
	old := spreadOf(t, `subsets: [{name: a, maxReplicas: 5}, {name: b}]`)
	for name, tt := range map[string]struct {
		spec string
		bad  bool
	}{
		"everything else": {`{targetRef: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: web}, subsets: [{name: b}, {name: c, maxReplicas: 1}]}`, false},
		"another name":    {`{targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: mesh}, subsets: [{name: a}]}`, true},
		"another kind":    {`{targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, name: web}, subsets: [{name: a}]}`, true},
		"another group":   {`{targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}, subsets: [{name: a}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if errs := Validate(spreadOf(t, tt.spec), old, Environment{Window: UnschedulableWindow}); (len(errs) > 0) != tt.bad {
				t.Errorf("there are errors: got %t, want %t\n%v", len(errs) > 0, tt.bad, errs)
			}
		})
	}
}

// WS-047, WS-190: volumes for claim templates, in place of those of the same name.
func TestPatched(t *testing.T) {
	var workload map[string]any
	if err := yaml.Unmarshal([]byte(`{spec: {volumeClaimTemplates: [{metadata: {name: data}}, {metadata: {name: data}}, {metadata: {}}, {metadata: {name: disk}}, 5],
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i, hologram: 1}], volumes: [{name: data, emptyDir: {}}, {name: tmp, emptyDir: {}}]}}}}`), &workload); err != nil {
		t.Fatal(err)
	}
	got, err := Patched(workload, []byte(`{"metadata":{"labels":{"zone":"a"}},"spec":{"containers":[{"name":"c","env":[{"name":"Z","value":"a"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `metadata:
  labels:
    app: web
    zone: a
spec:
  containers:
  - env:
    - name: Z
      value: a
    hologram: 1
    image: i
    name: c
  volumes:
  - name: data
    persistentVolumeClaim:
      claimName: data
  - name: disk
    persistentVolumeClaim:
      claimName: disk
  - emptyDir: {}
    name: tmp
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	// WS-048, WS-193
	for name, odd := range map[string]map[string]any{"nothing": nil, "no spec": {"spec": 5}, "no template": {"spec": map[string]any{}},
		"a template that is text": {"spec": map[string]any{"template": "x"}}} {
		if _, err := Patched(odd, []byte(`{"spec":{"containers":[{"name":"a"}]}}`)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
