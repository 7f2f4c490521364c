package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// nativeManifest has what a manifest of the native kind can have, but minReadySeconds.
const nativeManifest = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"web","namespace":"default"},"spec":{
	"replicas":3,"serviceName":"web","podManagementPolicy":"OrderedReady","revisionHistoryLimit":5,"ordinals":{"start":0},
	"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"},"selector":{"matchLabels":{"app":"web"}},
	"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0,"maxUnavailable":1}},
	"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}},
	"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],
		"resources":{"requests":{"storage":"1Gi"}}}}]}}`

func decodeStrictly(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// TestAManifestOfTheNativeKind shows ASTS-001: each field of the native kind is one of ours, but
// minReadySeconds, which is refused; a manifest with another apiVersion is complete and valid, and its pods
// are made in order, and made anew one by one, the highest first.
func TestAManifestOfTheNativeKind(t *testing.T) {
	fields := func(of reflect.Type, path ...string) map[string]reflect.Type {
		for _, key := range path {
			of = jsonfields.Of(jsonfields.Elem(of))[key]
		}
		return jsonfields.Of(jsonfields.Elem(of))
	}
	native, ours := reflect.TypeFor[appsv1.StatefulSetSpec](), reflect.TypeFor[appsv1beta1.StatefulSetSpec]()
	for _, path := range [][]string{nil, {"updateStrategy"}, {"updateStrategy", "rollingUpdate"}, {"ordinals"},
		{"persistentVolumeClaimRetentionPolicy"}} {
		for field := range fields(native, path...) {
			if _, found := fields(ours, path...)[field]; !found && field != "minReadySeconds" {
				t.Errorf("there is no field %v.%s", path, field)
			}
		}
	}
	if err := decodeStrictly(nativeManifest, &appsv1.StatefulSet{}); err != nil {
		t.Fatalf("the native kind: %v", err)
	}
	manifest, set := strings.Replace(nativeManifest, "apps/v1", "apps.kruise.io/v1beta1", 1), &appsv1beta1.StatefulSet{}
	if err := decodeStrictly(manifest, set); err != nil {
		t.Fatal(err)
	}
	if err := decodeStrictly(strings.Replace(manifest, `"replicas"`, `"minReadySeconds":5,"replicas"`, 1),
		&appsv1beta1.StatefulSet{}); err == nil {
		t.Error("minReadySeconds: error: got nil, want an error")
	} else if !strings.Contains(err.Error(), "minReadySeconds") {
		t.Errorf("minReadySeconds: error: got %q, want it to contain %q", err.Error(), "minReadySeconds")
	}
	var document statefulset.Document
	if err := json.Unmarshal([]byte(manifest), &document); err != nil {
		t.Fatal(err)
	}
	operations, err := statefulset.Default(statefulset.DefaultRequest{Version: "v1beta1", New: document})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(operations)
	patch, err := jsonpatchapply.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	completed, err := patch.Apply([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	set = &appsv1beta1.StatefulSet{}
	if err := json.Unmarshal(completed, set); err != nil {
		t.Fatal(err)
	}
	if errs := statefulset.Validate(statefulset.WrittenInV1beta1(set), nil, statefulset.Gates{}, nil); len(errs) > 0 {
		t.Errorf("errs: got %v, want none", errs)
	}

	s := simulate(1, set, statefulset.Features{StartOrdinal: true, PodIndexLabel: true, DeleteClaims: true, ResizeClaims: true})
	var happened []string
	s.BeforeWrite = func(w simulation.Write, _, _ client.Object) {
		if w.Key.Kind != "Pod" || w.Verb == "patch" {
			return
		}
		happened = append(happened, w.Verb+" "+w.Key.Name)
		ready := 0
		for _, pod := range s.AllPods() {
			if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && slices.ContainsFunc(pod.Status.Conditions,
				func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
				ready++
			}
		}
		if all := len(s.AllPods()); ready != all {
			t.Errorf("%v, and %d of %d pods are ready", happened, ready, all)
		}
	}
	s.ActFor(time.Minute)
	s.Edit(image("nginx:2"))
	s.ActFor(time.Minute)
	want := []string{"create web-0", "create web-1", "create web-2", "delete web-2", "create web-2", "delete web-1", "create web-1",
		"delete web-0", "create web-0"}
	is := s.set().Status
	if !slices.Equal(happened, want) {
		t.Errorf("happened: got %q, want %q\n%+v", happened, want, is)
	}
	if is.AvailableReplicas != 3 {
		t.Errorf("available replicas: got %d, want 3\n%+v", is.AvailableReplicas, is)
	}
	if is.CurrentRevision != is.UpdateRevision {
		t.Errorf("current revision: got %q, want %q\n%+v", is.CurrentRevision, is.UpdateRevision, is)
	}
	if is.CurrentReplicas != 3 {
		t.Errorf("current replicas: got %d, want 3\n%+v", is.CurrentReplicas, is)
	}
}

// hasPullJobs lets the cluster have the kind ImagePullJob.
func (s *simulated) hasPullJobs(t *testing.T) {
	t.Helper()
	if err := s.IndexField(t.Context(), podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController); err != nil {
		t.Fatal(err)
	}
	s.kube.PullJobs = func() bool { return true }
}

// reads notes the kinds that are read from the caches.
type reads struct {
	client.Client
	kinds map[string]bool
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	r.kinds[strings.TrimPrefix(fmt.Sprintf("%T", into), "*v1.")] = true
	return r.Client.Get(ctx, key, into, options...)
}

func (r *reads) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	r.kinds[strings.TrimPrefix(fmt.Sprintf("%T", into), "*v1.")] = true
	return r.Client.List(ctx, into, options...)
}

// TestWhatIsWritten shows ASTS-003: whatever happens to a set, nothing is written but its pods, PVCs,
// revisions, image pulls, and its status; no Service is made, nor looked at, though there is none.
func TestWhatIsWritten(t *testing.T) {
	s := simulate(1, makeSet(5, inPlace, func(set *appsv1beta1.StatefulSet) {
		setClaims(set, []string{"data"}, "1Gi")
		set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{
			WhenDeleted: appsv1beta1.DeleteStatefulSetClaims, WhenScaled: appsv1beta1.DeleteStatefulSetClaims}
		one := int32(1)
		set.Spec.RevisionHistoryLimit = &one
	}), statefulset.Features{DeleteClaims: true, ResizeClaims: true, PodIndexLabel: true, PreDownload: true})
	s.hasPullJobs(t)
	read, asked, written := map[string]bool{}, map[string]bool{}, map[string]bool{}
	s.kube.Client = &reads{s.kube.Client, read}
	s.Answer = func(r *simulation.Request) error { asked[r.Key.Kind] = true; return nil }
	s.BeforeWrite = func(w simulation.Write, _, _ client.Object) {
		written[strings.TrimSpace(w.Verb+" "+w.Key.Kind+" "+w.Subresource)] = true
	}
	s.ActFor(time.Minute)
	s.storeRevision("left", map[string]string{"app": "web"})
	for i, change := range []func(*appsv1beta1.StatefulSet){image("nginx:2"), image("nginx:3"), scaled(2), image("nginx:1"), scaled(4),
		func(set *appsv1beta1.StatefulSet) { setClaims(set, []string{"data"}, "2Gi") }, image("nginx:4"), reserve(1)} {
		s.Edit(change)
		s.Node.Fail(fmt.Sprintf("web-%d", i%2))
		s.Change(podKey("web-0"), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "" })
		s.ActFor(5 * time.Minute)
	}
	want := []string{"create ControllerRevision", "create ImagePullJob", "create PersistentVolumeClaim", "create Pod",
		"delete ControllerRevision", "delete ImagePullJob", "delete Pod",
		"patch ControllerRevision", "patch PersistentVolumeClaim", "patch Pod", "patch Pod status",
		"patch StatefulSet status"}
	if got := slices.Sorted(maps.Keys(written)); !slices.Equal(got, want) {
		t.Errorf("written: %v", got)
	}
	for _, kinds := range []map[string]bool{read, asked} {
		for kind := range kinds {
			if strings.HasPrefix(kind, "Service") {
				t.Errorf("%s is looked at", kind)
			}
		}
	}
	if !read["PersistentVolumeClaim"] {
		t.Errorf(`reads of claims: got false, want true; %v is read: %s`, read, s.describe())
	}
	if !read["Pod"] {
		t.Errorf(`reads of pods: got false, want true; %v is read: %s`, read, s.describe())
	}
	if got := s.set().Status.UpdatedAvailableReplicas; got != 4 {
		t.Errorf("updated and available replicas: got %d, want 4; %v is read: %s", got, read, s.describe())
	}
	if got := len(s.List("Service", false)); got > 0 {
		t.Errorf(`services: got %d, want none; %v is read: %s`, got, read, s.describe())
	}
}
