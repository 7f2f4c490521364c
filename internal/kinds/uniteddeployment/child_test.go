package uniteddeployment

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// object is a document as it is read.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]any{}
	if err := json.Unmarshal(encoded, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// same compares documents by what they say in JSON.
func same(t *testing.T, got, want map[string]any) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, object(t, string(text))); diff != "" {
		t.Errorf("object(t, string(text)) (-want +got):\n%s", diff)
	}
}

// UD-016, UD-068 (part), UD-069, UD-070, UD-100, UD-163, UD-171: the document of a child, fields that our
// types do not know included.
func TestChildrenKeepUnknownFields(t *testing.T) {
	u := &appsv1beta1.UnitedDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	u.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "DoesNotExist"}}}
	s := &appsv1beta1.Subset{Name: "a", Tolerations: []corev1.Toleration{{Key: "t", Operator: "Exists"}},
		NodeSelectorTerm: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}},
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"one"}}}},
		Patch: runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"apps.kruise.io/subset-name":"evil","by":"patch"}},"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"b"}]}]}}`)}}
	spec := `{future: {x: [1]}, replicas: 77, minReadySeconds: 3, selector: {matchLabels: {mine: too}}, STRATEGY template: {metadata: {labels: {app: web}, future: 1}, spec: {future: 2,
		tolerations: [{key: own}], containers: [{name: main, image: i, future: 3}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
		{matchExpressions: [{key: own, operator: Exists}]}, {matchFields: [{key: f, operator: In, values: [g]}]}]}}}}}}`
	for kind, tt := range map[Kind]struct{ given, want string }{
		StatefulSet:         {``, `updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}},`},
		AdvancedStatefulSet: {`updateStrategy: {rollingUpdate: {paused: true}},`, `updateStrategy: {rollingUpdate: {paused: true, partition: 1}},`},
		CloneSet:            {`updateStrategy: {rollingUpdate: {partition: 50%}},`, `updateStrategy: {rollingUpdate: {partition: 1}},`},
		Deployment:          {`strategy: {rollingUpdate: {maxSurge: 1}},`, `strategy: {rollingUpdate: {maxSurge: 1}},`},
	} {
		template := &Template{kind, object(t, `{metadata: {labels: {app: web, team: x}, annotations: {note: text}}, spec: `+strings.Replace(spec, "STRATEGY", tt.given, 1)+`}`)}
		before := fmt.Sprint(template.Document)
		got, err := template.Build(u, s, Wanted{Replicas: 3, Partition: 1, Revision: "web-1", Patch: string(s.Patch.Raw)})
		if err != nil {
			t.Fatal(err)
		}
		name := NameOf("web", "u", kind, "a", 0)
		if !strings.HasPrefix(name, "web-a-") {
			t.Errorf("name: got %q, want it to begin with %q", name, "web-a-")
		}
		want := object(t, `{apiVersion: `+kind.APIVersion()+`, kind: `+kind.Name()+`, metadata: {namespace: shop, name: `+name+`,
			labels: {app: web, team: x, apps.kruise.io/subset-name: a, apps.kruise.io/controller-revision-hash: web-1}, annotations: {note: text},
			ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, name: web, uid: u, controller: true, blockOwnerDeletion: true}]},
			spec: {future: {x: [1]}, replicas: 3, minReadySeconds: 3, `+tt.want+`
			selector: {matchLabels: {app: web, apps.kruise.io/subset-name: a}, matchExpressions: [{key: x, operator: DoesNotExist}]},
			template: {metadata: {future: 1, labels: {app: web, by: patch, apps.kruise.io/subset-name: a, apps.kruise.io/controller-revision-hash: web-1}}, spec: {future: 2,
			tolerations: [{key: own}, {key: t, operator: Exists}], containers: [{name: main, image: i, future: 3, env: [{name: A, value: b}]}],
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
			{matchExpressions: [{key: own, operator: Exists}, {key: zone, operator: In, values: [a]}], matchFields: [{key: metadata.name, operator: In, values: [one]}]},
			{matchExpressions: [{key: zone, operator: In, values: [a]}], matchFields: [{key: f, operator: In, values: [g]}, {key: metadata.name, operator: In, values: [one]}]}]}}}}}}}`)
		member(member(want, "metadata"), "annotations")[SubsetPatch] = string(s.Patch.Raw)
		same(t, got, want)
		if fmt.Sprint(template.Document) != before {
			t.Error("the template was changed")
		}
	}
	// OnDelete has no partition, an empty term changes nothing, and without a patch the annotation is empty.
	template := &Template{StatefulSet, object(t, `{spec: {updateStrategy: {type: OnDelete}, template: {}}}`)}
	got, err := template.Build(u, &appsv1beta1.Subset{Name: "a"}, Wanted{Partition: 1, Revision: "r"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, member(member(got, "spec"), "updateStrategy"), object(t, `{type: OnDelete}`))
	same(t, member(member(member(got, "spec"), "template"), "spec"), map[string]any{})
	same(t, member(member(got, "metadata"), "annotations"), object(t, `{apps.kruise.io/subset-patch: ""}`))
	// UD-073 (part): where maxUnavailable stands.
	for kind, strategy := range map[Kind]string{CloneSet: "updateStrategy", Deployment: "strategy"} {
		got, err := (&Template{kind, object(t, `{spec: {template: {}}}`)}).Build(u, s, Wanted{MaxUnavailable: new(intstr.FromInt32(3))})
		if rolling := member(member(member(got, "spec"), strategy), "rollingUpdate"); err != nil {
			t.Errorf("unexpected error: %v\n%v", err, rolling)
		} else if rolling["maxUnavailable"] != int64(3) {
			t.Errorf("rolling[\"maxUnavailable\"]: got %v, want %d\n%v\n%v", rolling["maxUnavailable"], int64(3), err, rolling)
		}
	}
}

// UD-064 (part): names of children are valid, differ where they must, and are the same each time.
func TestNamesOfChildren(t *testing.T) {
	seen := map[string]bool{}
	for _, united := range []string{"web", "a.b", strings.Repeat("x", 253), strings.Repeat("y.", 100) + "z"} {
		for _, kind := range Kinds {
			for _, name := range []string{"a", "b", "Upper_Case", strings.Repeat("s", 63)} {
				for further := range 2 {
					got := NameOf(united, "u", kind, name, further)
					if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 {
						t.Errorf("%s, %s, %s: the name %s is none: %v", united, kind, name, got, errs)
					}
					most := 63
					if kind == StatefulSet || kind == AdvancedStatefulSet {
						most = 52
					}
					if len(got) > most {
						t.Errorf("%s, %s, %s: the name %s has more than %d characters", united, kind, name, got, most)
					}
					if seen[got] {
						t.Errorf("%s, %s, %s: the name %s is that of another one", united, kind, name, got)
					}
					if again := NameOf(united, "u", kind, name, further); got != again {
						t.Errorf("%s, %s, %s: the name %s became %s", united, kind, name, got, again)
					}
					if got == NameOf(united, "v", kind, name, further) {
						t.Errorf("%s, %s, %s: the name %s is the same for another UID", united, kind, name, got)
					}
					seen[got] = true
				}
			}
		}
	}
}

// UD-068, UD-071 (part): a live child gets what the new document says; defaults, what the API server writes
// in its own way, and what others wrote stay.
func TestMergingKeepsWhatOthersWrote(t *testing.T) {
	pod := func(text string) string { return `{spec: {template: {spec: ` + text + `}}}` }
	tests := map[string]struct{ live, before, after, want string }{
		"nothing": {pod(`{dnsPolicy: ClusterFirst, containers: [{name: c, image: i, imagePullPolicy: Always, resources: {limits: {cpu: "1"}}}]}`),
			pod(`{hostNetwork: false, tolerations: [], containers: [{name: c, image: i, resources: {limits: {cpu: 1000m}}}]}`),
			pod(`{hostNetwork: false, tolerations: [], containers: [{name: c, image: i, resources: {limits: {cpu: 1000m}}}]}`),
			pod(`{dnsPolicy: ClusterFirst, containers: [{name: c, image: i, imagePullPolicy: Always, resources: {limits: {cpu: "1"}}}]}`)},
		"a new image is completed anew": {pod(`{dnsPolicy: ClusterFirst, containers: [{name: c, image: i, imagePullPolicy: Always}]}`), pod(`{containers: [{name: c, image: i}]}`),
			pod(`{containers: [{name: c, image: j}]}`), pod(`{dnsPolicy: ClusterFirst, containers: [{name: c, image: j}]}`)},
		"a field that is no more": {pod(`{dnsPolicy: ClusterFirst, priority: 3, nodeName: node, containers: []}`), pod(`{nodeName: node, containers: []}`), pod(`{containers: []}`),
			pod(`{dnsPolicy: ClusterFirst, priority: 3, containers: []}`)},
		"another strategy": {`{spec: {paused: true, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%}}, template: {spec: {}}}}`, `{spec: {template: {}}}`,
			`{spec: {strategy: {type: Recreate}, template: {}}}`, `{spec: {paused: true, strategy: {type: Recreate}, template: {spec: {}}}}`},
		"edited by hand": {pod(`{dnsPolicy: ClusterFirst, containers: [{name: c, image: hand, imagePullPolicy: Always}]}`), pod(`{containers: [{name: c, image: i}]}`),
			pod(`{containers: [{name: c, image: i}]}`), pod(`{dnsPolicy: ClusterFirst, containers: [{name: c, image: i, imagePullPolicy: Always}]}`)},
		"of an unknown origin": {`{spec: {replicas: 1, old: 1, template: {spec: {dnsPolicy: ClusterFirst, containers: [{name: c, image: i, imagePullPolicy: Always}]}}}}`, ``,
			`{spec: {replicas: 2, template: {spec: {containers: [{name: c, image: i}]}}}}`, `{spec: {replicas: 2, template: {spec: {containers: [{name: c, image: i}]}}}}`},
		"another order of containers": {pod(`{containers: [{name: a, image: i, x: 1}, {name: b, image: i, x: 2}]}`), pod(`{containers: [{name: a, image: i}, {name: b, image: i}]}`),
			pod(`{containers: [{name: b, image: i}, {name: a, image: i}]}`), pod(`{containers: [{name: b, image: i, x: 2}, {name: a, image: i, x: 1}]}`)},
		"false where nothing was": {pod(`{containers: []}`), pod(`{containers: []}`), pod(`{automountServiceAccountToken: false, containers: []}`),
			pod(`{automountServiceAccountToken: false, containers: []}`)},
		"the selector stays": {`{spec: {selector: {a: b}, template: {spec: {}}}}`, ``, `{spec: {selector: {c: d}, template: {}}}`, `{spec: {selector: {a: b}, template: {spec: {}}}}`},
		"labels": {`{metadata: {uid: x, labels: {mine: x, old: z, kept: changed}, annotations: {deployment.kubernetes.io/revision: "1"}}, spec: {template: {spec: {}}}}`,
			`{metadata: {labels: {old: z, kept: a}}, spec: {}}`, `{metadata: {labels: {new: w}}, spec: {}}`,
			`{metadata: {uid: x, labels: {mine: x, new: w, kept: changed}, annotations: {deployment.kubernetes.io/revision: "1"}}, spec: {template: {spec: {}}}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var before map[string]any
			if tt.before != "" {
				before = object(t, tt.before)
			}
			got := Merge(object(t, tt.live), before, object(t, tt.after))
			for _, field := range []string{"labels", "annotations"} {
				if len(member(member(got, "metadata"), field)) == 0 {
					delete(member(got, "metadata"), field)
				}
			}
			if len(member(got, "metadata")) == 0 {
				delete(got, "metadata")
			}
			if template := member(member(got, "spec"), "template"); len(member(template, "metadata")) == 0 {
				delete(template, "metadata")
			}
			same(t, got, object(t, tt.want))
		})
	}
}

// The children of a UnitedDeployment in the table of workloads are the kinds that a template can have.
func TestKindsAreThoseOfTheTable(t *testing.T) {
	var got []schema.GroupKind
	for _, kind := range Kinds {
		got = append(got, kind.GroupVersionKind().GroupKind())
	}
	if diff := cmp.Diff(workloadkind.Of(workloadkind.UnitedDeployment).Children, got); diff != "" {
		t.Errorf("(-table +kinds):\n%s", diff)
	}
}
