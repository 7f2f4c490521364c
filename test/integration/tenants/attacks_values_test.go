//go:build integration

package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// valueAttacks are about what stands in an object: its labels, annotations, lists and texts.
var valueAttacks = []attack{
	{name: "keys", least: 100, run: func(ctx context.Context, m *tenant) error { return hostileKeys(ctx, m, garbage) },
		does: "each label and annotation that the product reads, with garbage in it, on an object of each kind and on pods of each workload"},
	{name: "huge-keys", least: 100, run: func(ctx context.Context, m *tenant) error { return hostileKeys(ctx, m, huge) },
		does: "the same with values of 60 KiB: deep JSON, long lists, long numbers"},
	{name: "annotations", least: 200, run: largeAnnotations,
		does: "100 CloneSets with annotations of 250 KiB that their pods have, too, and 200 pods of a CloneSet that claim to be its own"},
	{name: "lists", least: 10, run: longLists,
		does: "30 workloads with 19,000 items in a list, or 1.4 MB of variables, and pods of them"},
	{name: "patches", least: 15, run: growingPatches,
		does: "WorkloadSpreads and UnitedDeployments whose patches are 1 MB long, 5,000 levels deep, or replace, delete and reorder lists, for 40 pods each"},
	{name: "states", least: 300, run: handWrittenStates,
		does: "4 loops that write the state of the life cycle and of updates in place into 40 pods, by hand, with images and revisions that do not exist, while their CloneSet is updated"},
	{name: "revisions", least: 1, run: handWrittenRevisions,
		does: "60 ControllerRevisions of a CloneSet with 1 MB each of deep or wrong JSON and the largest numbers, written by an administrator, as role `edit` may not"},
	{name: "texts", least: 13, run: hostileTexts,
		does: "control characters, terminal escapes, invalid UTF-8 and 20 KiB of text where messages, events and the log repeat it"},
}

// keys returns all labels and annotations that the product has in its code.
func keys() ([]string, error) {
	is := regexp.MustCompile(`^[a-z0-9.-]*kruise\.io/[A-Za-z0-9._-]*$`)
	found := map[string]bool{}
	for _, key := range []string{"controller.kubernetes.io/pod-deletion-cost", "controller.kubernetes.io/hash", "controller-revision-hash", "pod-template-hash",
		"pod-template-generation", "inplace-update-state", "inplace-update-grace", "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"} {
		found[key] = true
	}
	for _, root := range []string{"../../../api", "../../../internal"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil && is.MatchString(text) && !strings.HasSuffix(text, "v1beta1") && !strings.HasSuffix(text, "v1alpha1") {
						found[text] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(found) < 80 {
		return nil, fmt.Errorf("only %d labels and annotations were found", len(found))
	}
	for key := range found {
		if strings.HasSuffix(key, "/") {
			delete(found, key)
			found[key+"x"] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// garbage are values that are short. Those that may not be values of labels are only used for annotations.
var garbage = []string{"-1", "true", "99999999999999999999", "x.y_z-1", "Always", "Updating", "PreparingDelete", "NormaL", "",
	`{"`, `[[[]]]`, `null`, `{"a":{"b":[{"c":null}]},"revision":9e999,"updateTimestamp":"x","lastContainerStatuses":{"c":{"imageID":5}}}`,
	"9999-99-99T99:99:99Z", "\x1b[2J\r\n\u202e", strings.Repeat("é", 500)}

// huge are values of about 60 KiB.
var huge = []string{strings.Repeat("[", 60_000), strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), strings.Repeat("9", 60_000),
	`[` + strings.TrimSuffix(strings.Repeat(`{},`, 15_000), ",") + `]`, strings.Repeat("a,", 30_000),
	`{"revision":"r","lastContainerStatuses":{` + strings.TrimSuffix(strings.Repeat(`"c":{"imageID":"i"},`, 2500), ",") + `}}`,
	`{"nextContainerImages":{` + strings.TrimSuffix(manyMembers(2500), ",") + `}}`}

func manyMembers(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `"c%d":"i:%d",`, i, i)
	}
	return text.String()
}

var label = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)

// hostileKeys writes each key with each value into objects of all kinds, some keys at a time: an object has
// at most 256 KiB of annotations.
func hostileKeys(ctx context.Context, m *tenant, values []string) error {
	keys, err := keys()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(kinds))
	const atOnce = 4
	groups := (len(keys) + atOnce - 1) / atOnce
	each(ctx, groups*len(values), 8, func(i int) {
		group, value := keys[i%groups*atOnce:min(len(keys), (i%groups+1)*atOnce)], values[i/groups]
		if i%3 > 0 && len(values) > 5 && i/groups > 1 { // a third of the combinations is enough
			return
		}
		kind := names[i%len(names)]
		o := of(kind, fmt.Sprintf("keys-%d", i))
		if kind == "CloneSet" || kind == "StatefulSet" {
			with(o, "spec.replicas", int64(1))
		}
		labels := map[string]string{}
		for _, key := range group {
			annotated(key, value)(o)
			if label.MatchString(value) {
				labels[key] = value
			}
		}
		o.SetLabels(labels)
		m.make(ctx, o)
		pod := object(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: keys-%d}, spec: {nodeName: node-1, containers: [{name: c, image: "i:1"}]}}`, i))
		pod.SetLabels(labels)
		pod.SetAnnotations(o.GetAnnotations())
		pod.SetOwnerReferences(owner("CloneSet", fmt.Sprintf("keys-%d", i), o.GetUID()+"x"))
		m.make(ctx, pod)
	})
	return nil
}

func largeAnnotations(ctx context.Context, m *tenant) error {
	value := strings.Repeat("0123456789abcde\n", 16_000)
	each(ctx, 100, 8, func(i int) {
		m.make(ctx, workload("CloneSet", m.namespace, fmt.Sprintf("annotated-%d", i), 1, annotated("example.com/note", value)))
	})
	set := m.make(ctx, of("CloneSet", "own"))
	each(ctx, 200, 8, func(i int) {
		pod := object(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: own-%d}, spec: {containers: [{name: c, image: "i:1"}]}}`, i))
		pod.SetAnnotations(map[string]string{"example.com/note": value})
		pod.SetLabels(map[string]string{"app": "own"})
		if i%2 == 0 {
			pod.SetOwnerReferences(owner("CloneSet", "own", set.GetUID()+"-not"))
		}
		m.make(ctx, pod)
	})
	return nil
}

func longLists(ctx context.Context, m *tenant) error {
	each(ctx, 30, 4, func(i int) {
		kind := []string{"CloneSet", "StatefulSet", "DaemonSet"}[i%3]
		change := environment(19_000)
		switch i / 3 % 3 {
		case 1:
			change = func(o *unstructured.Unstructured) {
				c := container(o)
				list := make([]any, 4500)
				for i := range list {
					list[i] = map[string]any{"name": fmt.Sprintf("E%d", i), "value": strings.Repeat("v", 280)}
				}
				c["env"] = list
				with(o, "spec.template.spec.containers", []any{c})
			}
		case 2:
			change = func(o *unstructured.Unstructured) {
				list := make([]any, 6000)
				for i := range list {
					list[i] = map[string]any{"name": fmt.Sprintf("c%d", i), "image": "i:1"}
				}
				with(o, "spec.template.spec.containers", list)
			}
		}
		m.make(ctx, workload(kind, m.namespace, fmt.Sprintf("long-%d", i), 1, change))
	})
	return nil
}

func growingPatches(ctx context.Context, m *tenant) error {
	long := strings.Repeat("v", 200_000)
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	patches := []string{
		fmt.Sprintf(`{"metadata":{"annotations":{"a":%q}}}`, long), `{"spec":` + deep + `}`, `{"metadata":` + deep + `}`,
		`{"spec":{"containers":[{"name":"c","env":[` + strings.TrimSuffix(strings.Repeat(`{"name":"A","value":"b"},`, 15_000), ",") + `]}]}}`,
		`{"spec":{"$patch":"replace"}}`, `{"spec":{"containers":[{"$patch":"delete","name":"c"}]}}`, `{"$patch":"delete"}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"x"},{"name":"c"}],"$retainKeys":["volumes"],"$deleteFromPrimitiveList/finalizers":["a"]}}`,
		`{"spec":{"containers":null,"nodeName":5,"tolerations":[null,null]},"metadata":{"ownerReferences":null,"uid":"x","namespace":"peaceful","name":"orphan"}}`,
		`[[[[`, `"text"`,
	}
	each(ctx, len(patches), 4, func(i int) {
		var patch any
		if json.Unmarshal([]byte(patches[i]), &patch) != nil {
			patch = patches[i]
		}
		name := fmt.Sprintf("spread-%d", i)
		o := of("WorkloadSpread", name)
		m.make(ctx, with(o, "spec.subsets", []any{map[string]any{"name": "a", "maxReplicas": int64(20), "patch": patch}, map[string]any{"name": "b", "patch": patch}}))
		m.make(ctx, workload("CloneSet", m.namespace, name, 4))
		o = of("UnitedDeployment", "united-"+strconv.Itoa(i))
		subsets := make([]any, 8)
		for j := range subsets {
			subsets[j] = map[string]any{"name": fmt.Sprintf("s%d", j), "patch": patch}
		}
		with(o, "spec.replicas", int64(8))
		m.make(ctx, with(o, "spec.topology.subsets", subsets))
	})
	return nil
}

func handWrittenStates(ctx context.Context, m *tenant) error {
	m.make(ctx, with(workload("CloneSet", m.namespace, "states", 40), "spec.updateStrategy",
		map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": "100%"}}))
	if err := m.hasPods(ctx, 40); err != nil {
		return err
	}
	state := func(revision string) string {
		text, _ := json.Marshal(fmt.Sprintf(`{"revision":%q,"updateTimestamp":"2020-01-01T00:00:00Z","lastContainerStatuses":{"c":{"imageID":"x"}},"updateImages":true,
			"nextContainerImages":{"c":"i:9","none":"i:8"},"nextContainerRefMetadata":{"c":{"labels":{"a":"b"}}},"containerBatchesRecord":[{"timestamp":"2099-01-01T00:00:00Z","containers":["c"]}]}`, revision))
		return string(text)
	}
	values := []string{`"Updating"`, `"Updated"`, `"PreparingUpdate"`, `"PreparingDelete"`, `"Normal"`, `"x"`, `null`}
	var pods [4][]corev1.Pod
	m.again(ctx, len(pods), func(loop, i int) {
		if i%20 == 0 { // the label specified-delete has replaced some
			pods[loop] = m.pods(ctx)
		}
		if loop == 0 && i%50 == 0 {
			o := of("CloneSet", "states")
			o.SetNamespace(m.namespace)
			m.patches(ctx, o, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i:%d"}]}}}}`, i))
		}
		own := pods[loop]
		if len(own) == 0 {
			return
		}
		m.patches(ctx, &own[(i*4+loop)%len(own)], fmt.Sprintf(`{"metadata":{"labels":{"lifecycle.apps.kruise.io/state":%s,"controller-revision-hash":"states-%d","apps.kruise.io/specified-delete":%s},"annotations":{
			"apps.kruise.io/inplace-update-state":%s,"apps.kruise.io/inplace-update-grace":%s,"lifecycle.apps.kruise.io/timestamp":"2099-01-01T00:00:00Z"}}}`,
			values[i%len(values)], i, values[(i+4)%len(values)], state(fmt.Sprintf("states-%d", i)), state("none")))
	})
	return nil
}

func handWrittenRevisions(ctx context.Context, m *tenant) error {
	set := m.make(ctx, workload("CloneSet", m.namespace, "revised", 5))
	if err := m.hasPods(ctx, 5); err != nil {
		return err
	}
	datas := []string{
		`{"spec":{"template":` + strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000) + `}}`,
		`{"spec":{"template":{"$patch":"replace","spec":{"containers":[` + strings.TrimSuffix(strings.Repeat(`{"name":"c","image":"i"},`, 40_000), ",") + `]}}}}`,
		`{"spec":{"template":{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 1_000_000) + `"}}}}}`,
		`{"spec":5}`, `{}`, `{"spec":{"template":null}}`,
	}
	for i := range 60 {
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: fmt.Sprintf("revised-%d", i),
			Labels:          map[string]string{"app": "revised", "controller.kubernetes.io/hash": strconv.Itoa(i), "controller-revision-hash": fmt.Sprintf("revised-%d", i)},
			OwnerReferences: owner("CloneSet", "revised", set.GetUID())}, Revision: []int64{1, 1, 1<<63 - 1, 0, 1<<63 - 1}[i%5],
			Data: runtime.RawExtension{Raw: []byte(datas[i%len(datas)])}}
		if err := m.w.kube.Create(ctx, revision); err != nil && i%len(datas) > 0 { // the deepest one may be refused
			return err
		}
	}
	for i := range 3 {
		if err := m.w.kube.Patch(ctx, set.DeepCopy(), client.RawPatch(types.JSONPatchType,
			[]byte(fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"i:%d"}]`, i+2)))); err != nil {
			return err
		}
	}
	return nil
}

func hostileTexts(ctx context.Context, m *tenant) error {
	text := "\x00\x01\x1b[31m\x1b]0;mine\x07\u202e\u2028\ufeff\r\n" + strings.Repeat("long ", 4000)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		o := of(kind, "texts")
		annotated("example.com/note", text)(o)
		if kind == "CloneSet" || kind == "StatefulSet" {
			with(o, "spec.replicas", int64(1))
			c := container(o)
			c["image"], c["command"] = "i:"+strings.Repeat("x", 4000)+"\u202e", []any{text}
			with(o, "spec.template.spec.containers", []any{c})
		}
		m.make(ctx, o)
		o.SetName("broken")
		o.SetResourceVersion("")
		raw, err := json.Marshal(o)
		if err != nil {
			return err
		}
		m.posts(ctx, strings.ToLower(kind)+"s", []byte(strings.ReplaceAll(string(raw), "long ", "\xff\xfe\xc0\x80")))
	}
	for _, bad := range []string{
		`{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, metadata: {name: refused}, spec: {selector: {matchLabels: {a: b}}, template: {cloneSetTemplate: {metadata: {labels: {a: b}}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: %q, image: i}]}}}}}, topology: {subsets: [{name: a}]}}}`,
		`{apiVersion: apps.kruise.io/v1beta1, kind: AdvancedCronJob, metadata: {name: refused}, spec: {schedule: %q, template: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}}}`,
		`{apiVersion: apps.kruise.io/v1beta1, kind: ImagePullJob, metadata: {name: refused}, spec: {image: %q, completionPolicy: {}}}`,
	} {
		m.makes(ctx, bad, "\x1b[31m"+strings.Repeat("x", 20_000))
	}
	return nil
}
