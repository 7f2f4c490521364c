package statefulset

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// sized gives a claim a request and a capacity; no capacity means that it has no volume.
func sized(claim *corev1.PersistentVolumeClaim, asked, has string) {
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asked)}
	if claim.Status.Capacity = nil; has != "" {
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
	}
}

// remounting lets a claim wait since then for its file system to be mounted anew.
func remounting(claim *corev1.PersistentVolumeClaim, since time.Duration) {
	sized(claim, "2Gi", "1Gi")
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending,
		Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(planTime.Add(-since))}}
}

// templates gives the set claim templates, as documents of their specs by name.
func (w *world) templates(specs ...string) {
	var documents []string
	for i, spec := range specs {
		documents = append(documents, `{"metadata":{"name":"`+string(rune('a'+i))+`"},"spec":`+spec+`}`)
	}
	if err := w.Set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte("[" + strings.Join(documents, ",") + "]")); err != nil {
		w.t.Fatal(err)
	}
}

// claimed adds a PVC of a template and an ordinal.
func (w *world) claimed(template string, ordinal int, asked, has string) *corev1.PersistentVolumeClaim {
	name := claimName(template, "web", ordinal)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "claim", ResourceVersion: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	sized(claim, asked, has)
	w.Claims[name] = claim
	return claim
}

// mounting is a pod with volumes of the claim templates.
func (w *world) mounting(ordinal int, image string, templates string) {
	w.pod(ordinal, image, func(pod *corev1.Pod) {
		pod.Spec.Volumes = nil
		for _, template := range strings.Split(templates, "") {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: template, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(template, "web", ordinal)}}})
		}
	})
}

// TestClaimsThatDoNotFollow shows ASTS-270: only PVCs that are made later have the new size.
func TestClaimsThatDoNotFollow(t *testing.T) {
	follows := func(strategy appsv1beta1.StatefulSetClaimUpdateStrategyType) option {
		return func(set *appsv1beta1.StatefulSet) { set.Spec.VolumeClaimUpdateStrategy.Type = strategy }
	}
	for name, tt := range map[string]struct {
		strategy appsv1beta1.StatefulSetClaimUpdateStrategyType
		gate     bool
	}{
		"OnDelete":    {appsv1beta1.OnPVCDeleteStatefulSetClaimUpdate, true},
		"no strategy": {"", true},
		"no gate":     {appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, withClaims, follows(tt.strategy), inParallel, policy(possible))
			w.Features.ResizeClaims = tt.gate
			w.at("a:1")
			all(w, "a:1", 3)
			w.claim(1).Spec.AccessModes = nil // nor does this hold up anything
			setClaims(w.Set, "2Gi")
			w.expect()
			w.at("a:2")
			w.expect("~2")
			w.Pods[2].Labels["controller-revision-hash"] = w.revisions["a:2"]
			w.Pods[2].Spec.Containers[0].Image = "a:2"
			w.expect("~1")
			w.Pods, w.Claims = w.Pods[:2], map[string]*corev1.PersistentVolumeClaim{}
			creation := Make(w.Snapshot).Create[0]
			request := nested(creation.Claims[0], "spec", "resources", "requests")["storage"]
			if creation.Name != "web-2" {
				t.Errorf("name of the creation: got %q, want %q", creation.Name, "web-2")
			}
			if request != "2Gi" {
				t.Errorf("request: got %v, want %q", request, "2Gi")
			}
		})
	}
}

func nested(document map[string]any, path ...string) map[string]any {
	for _, key := range path {
		document, _ = document[key].(map[string]any)
	}
	return document
}

// TestWhichClaimsAreAsTheirTemplates shows ASTS-271, and ASTS-279: for each template in its order, how many
// pods of slots have such a claim, and of these how many have its size. It does so whatever the strategy and
// the gate.
func TestWhichClaimsAreAsTheirTemplates(t *testing.T) {
	const plain = `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}}`
	const classy = `{"storageClassName":"gold","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}}`
	class := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &name }
	}
	modes := func(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
		return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.AccessModes = modes }
	}
	for name, tt := range map[string]struct {
		template, asked, has string
		change               func(*corev1.PersistentVolumeClaim)
		compatible, ready    bool
	}{
		"as the template":                   {plain, "2Gi", "2Gi", nil, true, true},
		"larger":                            {plain, "3Gi", "3Gi", nil, true, true},
		"a capacity that is larger":         {plain, "2Gi", "5Gi", nil, true, true},
		"smaller":                           {plain, "1Gi", "1Gi", nil, false, false},
		"smaller, though its volume is not": {plain, "1Gi", "5Gi", nil, false, false},
		"it grows":                          {plain, "2Gi", "1Gi", nil, true, false},
		"it has no volume":                  {plain, "2Gi", "", nil, true, false},
		"the same class":                    {classy, "2Gi", "2Gi", class("gold"), true, true},
		"another class":                     {classy, "2Gi", "2Gi", class("silver"), false, false},
		"the template names none":           {plain, "2Gi", "2Gi", class("silver"), true, true},
		"the claim names none":              {classy, "2Gi", "2Gi", nil, true, true},
		"another mode":                      {plain, "2Gi", "2Gi", modes(corev1.ReadWriteMany), false, false},
		"one more mode":                     {plain, "2Gi", "2Gi", modes(corev1.ReadWriteOnce, corev1.ReadWriteMany), false, false},
	} {
		for more, options := range map[string][]option{"": nil, " follows": {follow}, " OnDelete": {deletedByHand}} {
			t.Run(name+more, func(t *testing.T) {
				w := newWorld(t, 2, options...)
				w.Features.ResizeClaims = more != ""
				w.at("a:1")
				w.templates(plain, tt.template)
				for i := range 3 { // 2 is no slot
					w.claimed("a", i, "2Gi", "2Gi")
					claim := w.claimed("b", i, tt.asked, tt.has)
					if tt.change != nil {
						tt.change(claim)
					}
					if i != 1 {
						w.mounting(i, "a:1", "ab")
					}
				}
				n := func(yes bool) int32 {
					if yes {
						return 1
					}
					return 0
				}
				want := []appsv1beta1.StatefulSetVolumeClaimStatus{{VolumeClaimName: "a", CompatibleReplicas: 1, CompatibleReadyReplicas: 1},
					{VolumeClaimName: "b", CompatibleReplicas: n(tt.compatible), CompatibleReadyReplicas: n(tt.ready)}}
				if diff := cmp.Diff(want, Make(w.Snapshot).Status.VolumeClaims); diff != "" {
					t.Errorf("claims of the status (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestClaimsGrowWithTheirTemplates shows ASTS-272, ASTS-273 (part), ASTS-274 (with TestAllClaimsOfAPod),
// ASTS-275 (part), ASTS-276 and ASTS-278: which claims grow, and what becomes of their pods. There are three
// pods at a:1, with claims of 1Gi, and the template asks for 2Gi.
func TestClaimsGrowWithTheirTemplates(t *testing.T) {
	grown := func(w *world, ordinals ...int) {
		for _, i := range ordinals {
			sized(w.claim(i), "2Gi", "2Gi")
		}
	}
	newer := func(w *world) { w.at("a:2") }
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    []string
	}{
		"the highest, though no pod is old": {nil, func(*world) {}, []string{"grow 2 2Gi"}},
		"then the next":                     {nil, func(w *world) { grown(w, 2) }, []string{"grow 1 2Gi"}},
		"as many as may be unavailable":     {[]option{inParallel, maxUnavailable(2)}, func(*world) {}, []string{"grow 1 2Gi", "grow 2 2Gi"}},
		"partition":                         {[]option{partition(2)}, func(w *world) { grown(w, 2) }, nil},
		"partition leaves one":              {[]option{partition(2)}, func(*world) {}, []string{"grow 2 2Gi"}},
		"paused":                            {[]option{paused}, func(*world) {}, nil},
		"OnDelete":                          {[]option{deletedByHand}, func(*world) {}, nil},
		"in the order of priorities": {[]option{inParallel, policy(possible), goldFirst},
			func(w *world) { newer(w); labelled("tier", "gold")(w.Pods[1]) }, []string{"grow 1 2Gi"}},
		"another one is down":               {[]option{inParallel}, func(w *world) { notReady(w.Pods[0]); grown(w, 0) }, nil},
		"it is down itself":                 {[]option{inParallel}, func(w *world) { notReady(w.Pods[0]) }, []string{"grow 0 2Gi"}},
		"one grows: its pod is unavailable": {[]option{inParallel}, func(w *world) { sized(w.claim(2), "2Gi", "1Gi") }, nil},
		"and another may be": {[]option{inParallel, maxUnavailable(2)}, func(w *world) { sized(w.claim(2), "2Gi", "1Gi") },
			[]string{"grow 1 2Gi"}},
		"it grew":                  {nil, func(w *world) { grown(w, 0, 1, 2) }, nil},
		"a claim without a volume": {nil, func(w *world) { sized(w.claim(2), "1Gi", "") }, []string{"grow 1 2Gi"}},
		"never smaller":            {nil, func(w *world) { grown(w, 0, 1); sized(w.claim(2), "5Gi", "5Gi") }, nil},
		"one that goes": {nil, func(w *world) { w.claim(2).DeletionTimestamp = &metav1.Time{Time: planTime} },
			[]string{"grow 1 2Gi"}},
		"one that is missing":                 {nil, func(w *world) { delete(w.Claims, "data-web-2") }, []string{"grow 1 2Gi"}},
		"before its pod is updated":           {[]option{policy(possible)}, newer, []string{"grow 2 2Gi"}},
		"before its pod is recreated":         {nil, newer, []string{"grow 2 2Gi"}},
		"and the update waits while it grows": {[]option{policy(possible)}, func(w *world) { newer(w); sized(w.claim(2), "2Gi", "1Gi") }, nil},
		"then the pod":                        {[]option{policy(possible)}, func(w *world) { newer(w); grown(w, 2) }, []string{"~2"}},
		"or when it has to be mounted": {[]option{policy(possible)}, func(w *world) { newer(w); remounting(w.claim(2), time.Second) },
			[]string{"~2"}},
		"or recreated, which mounts it":       {nil, func(w *world) { newer(w); remounting(w.claim(2), time.Second) }, []string{"-2"}},
		"without an update it may still come": {nil, func(w *world) { remounting(w.claim(2), remountAfter-time.Second) }, nil},
		"and if it does not the pod is made":  {nil, func(w *world) { remounting(w.claim(2), remountAfter) }, []string{"-2"}},
		"but not while another one is down": {[]option{inParallel}, func(w *world) {
			remounting(w.claim(2),
				time.Hour)
			notReady(w.Pods[0])
			grown(w, 0)
		}, nil},
		"two of them, one by one": {[]option{inParallel, maxUnavailable(2)}, func(w *world) {
			remounting(w.claim(2),
				time.Hour)
			remounting(w.claim(1), time.Hour)
		}, []string{"-1", "-2"}},
		"two of them, and one may be": {[]option{inParallel}, func(w *world) {
			remounting(w.claim(2), time.Hour)
			remounting(w.claim(1),
				time.Hour)
		}, []string{"-2"}},
		"two of them that are old": {[]option{inParallel}, func(w *world) {
			newer(w)
			remounting(w.claim(2),
				0)
			remounting(w.claim(1), 0)
		}, []string{"-2"}},
		"two of them that are specified": {[]option{inParallel}, func(w *world) {
			remounting(w.claim(2), 0)
			remounting(w.claim(1), 0)
			specified(w.Pods[1])
			specified(w.Pods[2])
		}, []string{"-2"}},
		"two of them, and a pod is missing": {[]option{inParallel}, func(w *world) {
			newer(w)
			remounting(w.claim(2), time.Hour)
			remounting(w.claim(1), time.Hour)
			w.Pods = w.Pods[1:]
		}, []string{"+0 a:2"}},
		"two of them, and one that goes first": {nil, func(w *world) {
			w.pod(3, "a:1", in("PreparingDelete"), labelled("delete", "on"))
			w.Set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"delete": "on"}}}
			remounting(w.claim(2), time.Hour)
			remounting(w.claim(1), time.Hour)
			specified(w.Pods[1])
		}, nil},
		"others go on where that is allowed": {[]option{inParallel, maxUnavailable(2)}, func(w *world) {
			remounting(w.claim(2),
				time.Second)
		}, []string{"grow 1 2Gi"}},
		"what cannot change stops the rollout": {[]option{inParallel, policy(possible), maxUnavailable(3)},
			func(w *world) { newer(w); w.claim(1).Spec.AccessModes = nil }, []string{"grow 2 2Gi"}},
		"nor can the class": {[]option{inParallel, maxUnavailable(3)},
			func(w *world) { other := "b"; w.claim(2).Spec.StorageClassName = &other }, nil},
		"the user deletes it, and it is made": {nil, func(w *world) {
			newer(w)
			grown(w, 2)
			delete(w.Claims,
				"data-web-2")
			pending(w.Pods[2])
		}, []string{"-2"}},
		"the growth was refused a moment ago": {nil, func(w *world) { w.GrowthHeldUntil, w.GrowthError = planTime.Add(time.Second), "no" }, nil},
		"and no other pod is tried before that": {[]option{inParallel, maxUnavailable(3)}, func(w *world) {
			grown(w, 0, 1)
			newer(w)
			w.GrowthHeldUntil, w.GrowthError = planTime.Add(time.Second), "no"
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append([]option{withClaims, follow}, tt.options...)...)
			w.at("a:1")
			all(w, "a:1", 3)
			if err := w.Set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte(`[{"metadata":{"name":"data"},"spec":{"storageClassName":"a",
				"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}}}]`)); err != nil {
				t.Fatal(err)
			}
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestAllClaimsOfAPod shows that a pod waits for all of its claims (ASTS-274 (part)).
func TestAllClaimsOfAPod(t *testing.T) {
	const spec = `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}}`
	for name, tt := range map[string]struct {
		second func(*corev1.PersistentVolumeClaim)
		want   []string
	}{
		"both are ready":         {func(c *corev1.PersistentVolumeClaim) { sized(c, "2Gi", "2Gi") }, []string{"~0"}},
		"one has to be mounted":  {func(c *corev1.PersistentVolumeClaim) { remounting(c, 0) }, []string{"~0"}},
		"one grows":              {func(c *corev1.PersistentVolumeClaim) { sized(c, "2Gi", "1Gi") }, nil},
		"one is too small":       {func(c *corev1.PersistentVolumeClaim) { sized(c, "1Gi", "1Gi") }, []string{"grow b-web-0 2Gi"}},
		"one is something else":  {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = nil }, nil},
		"one is larger than all": {func(c *corev1.PersistentVolumeClaim) { sized(c, "9Gi", "9Gi") }, []string{"~0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, follow, policy(possible))
			w.at("a:1")
			w.templates(spec, spec)
			w.mounting(0, "a:1", "ab")
			w.claimed("a", 0, "2Gi", "2Gi")
			tt.second(w.claimed("b", 0, "2Gi", "2Gi"))
			w.at("a:2")
			w.expect(tt.want...)
		})
	}
}

// TestALostPodOfTheOldRevisionHasTheVolumesThatItMounts shows ASTS-108 (part) and ASTS-130 (part): a new
// revision does without a claim template, and is tried on some pods; a pod of the old one that is lost comes
// back with its PVC.
func TestALostPodOfTheOldRevisionHasTheVolumesThatItMounts(t *testing.T) {
	const old = `{"metadata":{"labels":{"app":"web"}},"spec":{"initContainers":[{"name":"first","image":"i","volumeDevices":[{"name":"raw"}]}],
		"volumes":[{"name":"own","emptyDir":{}}],"containers":[{"name":"main","image":"a:1","volumeMounts":[{"name":"b"},{"name":"own"},{"name":"a"}]}]}}`
	w := newWorld(t, 2, partition(1))
	w.templates(`{}`, `{}`)
	w.stored("old", old)
	w.Set.Status.CurrentRevision = w.revisions["old"]
	w.stored("new", `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"a:2"}]}}`)
	w.templates(`{}`) // a alone
	w.mounting(1, "new", "a")
	for _, name := range []string{"b", "raw"} {
		w.claimed(name, 0, "1Gi", "1Gi")
	}
	if diff := cmp.Diff([]string{"a-web-0", "b-web-0", "raw-web-0"}, w.ClaimNames()[:3], cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("claim names (-want +got):\n%s", diff)
	}
	create := Make(w.Snapshot).Create
	if len(create) != 1 {
		t.Fatalf("number created: got %d, want 1\n%v", len(create), Make(w.Snapshot))
	} else if create[0].Revision != w.revisions["old"] {
		t.Fatalf("revision of the first of the create: got %q, want %q\n%v", create[0].Revision,
			w.revisions["old"], Make(w.Snapshot))
	}
	var names []string
	for _, volume := range nested(create[0].Pod, "spec")["volumes"].([]any) {
		names = append(names, volume.(map[string]any)["name"].(string))
	}
	if diff := cmp.Diff([]string{"a", "b", "raw", "own"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if len(create[0].Claims) != 1 { // that of a, which has a template
		t.Errorf("claims are made: %v", create[0].Claims)
	}
}

// TestWhatAWebhookPutsInPlaceOfAClaimStays shows ASTS-130 (part): a pod whose webhook gives it another volume
// of that name is not made anew, for the next one would get it too. A volume of the template's own, in whose
// place a claim template came, is none of a webhook.
func TestWhatAWebhookPutsInPlaceOfAClaimStays(t *testing.T) {
	for name, volume := range map[string]corev1.VolumeSource{"an emptyDir": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"another claim": {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}}, "as the caches keep it": {}} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []appsv1beta1.StatefulSetPodUpdatePolicy{"", possible} {
				w := newWorld(t, 1, withClaims, policy(p))
				w.at("a:1")
				w.pod(0, "a:1", func(pod *corev1.Pod) { pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: volume}} })
				w.expect()
				w.stored("own", `{"metadata":{"labels":{"app":"web"}},"spec":{"volumes":[{"name":"data","emptyDir":{}}],"containers":[{"name":"main","image":"a:1"}]}}`)
				w.Pods[0].Labels[pub.ControllerRevisionHash] = w.revisions["own"]
				w.expect("-0")
			}
		})
	}
}

// TestAClaimThatAnotherPodControlsIsToldOf shows ASTS-264 (part): the pod that would take it over is not
// created, and what it waits for is told.
func TestAClaimThatAnotherPodControlsIsToldOf(t *testing.T) {
	for scaled, want := range map[appsv1beta1.StatefulSetClaimRetention][]string{appsv1beta1.DeleteStatefulSetClaims: nil,
		appsv1beta1.RetainStatefulSetClaims: {"+0 a:1"}} {
		w := newWorld(t, 1, withClaims, retention(appsv1beta1.RetainStatefulSetClaims, scaled))
		w.at("a:1")
		w.claim(0).OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "other", Controller: new(true)}}
		w.expect(want...)
		if told := Make(w.Snapshot).ClaimsAwaited; strings.Contains(told, "goes with pod other") != (want == nil) {
			t.Errorf("%s: it goes with pod other: got %t, want %t\n%q", scaled,
				strings.Contains(told, "goes with pod other"), want == nil, told)
		}
	}
}
