package podindex

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/afloat-project/afloat/api/pub"
)

func serving(objects ...corev1.Pod) toolscache.ListerWatcher {
	source := fcache.NewFakeControllerSource()
	for i := range objects {
		source.Add(&objects[i])
	}
	return source
}

func pod(namespace, name, controller string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if controller != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{UID: "other"}, {UID: "set", Controller: &yes}}
	}
	return p
}

// TestIndex: pods are found by controller, over all caches, and are the caches' own objects (CS-043, CS-355).
// A user cannot make pods count for a controller in another namespace, which would then delete its own pods.
func TestIndex(t *testing.T) {
	index := &Index{}
	synced := []toolscache.InformerSynced{}
	informers := []toolscache.SharedIndexInformer{
		index.NewInformer(serving(pod("a", "owned", "set"), pod("a", "free", "")), &corev1.Pod{}, 0,
			toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}),
		index.NewInformer(serving(pod("b", "owned", "set"), pod("b", "free", "")), &corev1.Pod{}, 0, nil),
	}
	for _, informer := range informers {
		synced = append(synced, informer.HasSynced)
		go informer.RunWithContext(t.Context())
	}
	if !toolscache.WaitForCacheSync(t.Context().Done(), synced...) {
		t.Fatal("not synced")
	}
	for _, namespace := range []string{"a", "b"} {
		owned, err := index.ControlledBy(namespace, "set")
		if err != nil {
			t.Errorf("pods of the controller in %s: %v", namespace, err)
		}
		if diff := cmp.Diff([]string{namespace + "/owned"}, names(owned)); diff != "" {
			t.Errorf("pods of the controller in %s (-want +got):\n%s", namespace, diff)
		}
	}
	free, err := index.Uncontrolled("b")
	if err != nil {
		t.Errorf("pods without controller: %v", err)
	}
	if diff := cmp.Diff([]string{"b/free"}, names(free)); diff != "" {
		t.Errorf("pods without controller (-want +got):\n%s", diff)
	}
	others, err := index.ControlledBy("a", "other")
	if err != nil {
		t.Errorf("pods of an owner that is no controller: %v", err)
	}
	if len(others) != 0 {
		t.Errorf("pods of an owner that is no controller: got %v, want none", names(others))
	}
	if cached, _, _ := informers[1].GetIndexer().GetByKey("b/free"); cached != any(free[0]) {
		t.Error("the pod is a copy")
	}
	if claims := index.NewInformer(serving(), &corev1.PersistentVolumeClaim{}, 0,
		toolscache.Indexers{}); len(claims.GetIndexer().GetIndexers()) != 0 {
		t.Error("claims are indexed too")
	}
}

func names(pods []*corev1.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Namespace+"/"+p.Name)
	}
	slices.Sort(all)
	return all
}

// TestInjectedBy: pods are found by the SidecarSets that they list, in all namespaces (SS-182, SS-200).
func TestInjectedBy(t *testing.T) {
	injected := func(namespace, name, list string) corev1.Pod {
		p := pod(namespace, name, "set")
		p.Annotations = map[string]string{pub.SidecarSetInjectedList: list}
		return p
	}
	index := &Index{}
	informer := index.NewInformer(serving(injected("a", "both", "logs, mesh"), injected("b", "mesh", "mesh,mesh"),
		injected("b", "none", ""), pod("b", "plain", "set")),
		&corev1.Pod{}, 0, nil)
	go informer.RunWithContext(t.Context())
	if !toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	for name, want := range map[string][]string{"mesh": {"a/both", "b/mesh"}, "logs": {"a/both"}, "gone": nil, "": nil} {
		found, err := index.InjectedBy(name)
		if err != nil {
			t.Errorf("pods with the SidecarSet %q: %v", name, err)
		}
		if diff := cmp.Diff(want, names(found)); diff != "" {
			t.Errorf("pods with the SidecarSet %q (-want +got):\n%s", name, diff)
		}
	}
	seen := 0
	index.All(func(*corev1.Pod) bool { seen++; return seen < 3 })
	if seen != 3 {
		t.Errorf("pods that are seen: got %d, want 3", seen)
	}
}

// TestAPodThatListsAllSidecarSetsOfTheWorld: users may write very long annotations on pods. A list that no
// webhook has written must not cost more than any other; without a bound about a hundred such pods would take
// all memory.
func TestAPodThatListsAllSidecarSetsOfTheWorld(t *testing.T) {
	var list strings.Builder
	list.WriteString("mesh")
	for i := range 50_000 {
		fmt.Fprintf(&list, ",%x", i)
	}
	hostile := pod("a", "hostile", "")
	hostile.Annotations = map[string]string{pub.SidecarSetInjectedList: list.String()}
	index := &Index{}
	informer := index.NewInformer(serving(hostile), &corev1.Pod{}, 0, nil)
	go informer.RunWithContext(t.Context())
	if !toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	if n := len(informer.GetIndexer().ListIndexFuncValues(bySidecarSet)); n > pub.MaxSidecarSets {
		t.Errorf("names by which the pod is found: got %d, want %d at most", n, pub.MaxSidecarSets)
	}
	if found, err := index.InjectedBy("mesh"); err != nil {
		t.Errorf("pods with the SidecarSet mesh: %v", err)
	} else if len(found) != 1 {
		t.Errorf("pods with the SidecarSet mesh: got %v, want 1", names(found))
	}
}

// Pods are found by the EphemeralJobs that treated them, in the namespace of the job alone (EJ-037 (part)).
func TestTreatedPodsAreFoundInTheNamespaceOfTheirJob(t *testing.T) {
	treated := func(namespace, name string, jobs ...string) *corev1.Pod {
		p := pod(namespace, name, "")
		for _, job := range jobs {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Env: []corev1.EnvVar{{Name: pub.EphemeralJobEnv, Value: job}}}})
		}
		return &p
	}
	store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, Indexers())
	for _, p := range []*corev1.Pod{treated("a", "one", "x", "x", "y"), treated("a", "none"), treated("a", "empty", ""), treated("b", "two", "x")} {
		if err := store.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	index := &Index{}
	index.Add(store)
	for job, want := range map[string][]string{"x": {"a/one"}, "y": {"a/one"}, "z": nil} {
		found, err := index.TreatedBy("a", types.UID(job))
		if err != nil {
			t.Errorf("pods that job %s treated: %v", job, err)
		}
		if diff := cmp.Diff(want, names(found)); diff != "" {
			t.Errorf("pods that job %s treated (-want +got):\n%s", job, diff)
		}
	}
}
