package admission

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	admissionapi "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/fuzzing"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// mostPodAnswer is how much longer than what it is made of an answer about a pod may be.
const mostPodAnswer = 256 << 10

// rules are all that changes a new pod. A place in the subset is booked for each.
type rules struct {
	SidecarSet appsv1beta1.SidecarSetSpec        `json:"sidecarSet"`
	Subset     *appsv1beta1.WorkloadSpreadSubset `json:"subset"`
	State      *appsv1beta1.PersistentPodState   `json:"state"`
	Markers    []appsv1alpha1.PodProbeMarker     `json:"markers"`

	client.Reader
	booked, released int
}

func (r *rules) Choose(context.Context, *corev1.Pod, string) ([]*inject.Template, error) {
	template, err := inject.NewTemplate("logs", &r.SidecarSet, "", "", "")
	return []*inject.Template{template}, err
}

func (r *rules) Match(context.Context, *corev1.Pod, string) (*appsv1beta1.WorkloadSpread, error) {
	spread := &appsv1beta1.WorkloadSpread{}
	spread.Namespace, spread.Name = "shop", "web"
	return spread, nil
}

func (r *rules) Create(_ context.Context, _ *appsv1beta1.WorkloadSpread, _ workloadspread.Creation, prepare func(workloadspread.Decision) error) (workloadspread.Decision, error) {
	if r.Subset == nil {
		return workloadspread.Decision{Gone: true}, nil
	}
	r.booked++
	d := workloadspread.Decision{Subset: r.Subset, Booked: true, Made: true}
	return d, prepare(d)
}

func (r *rules) Delete(context.Context, *appsv1beta1.WorkloadSpread, workloadspread.Deletion) (workloadspread.Decision, error) {
	return workloadspread.Decision{}, nil
}

func (r *rules) Release(context.Context, *appsv1beta1.WorkloadSpread, workloadspread.Creation) error {
	r.released++
	return nil
}

func (r *rules) Book(context.Context, podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error) {
	return podunavailablebudgetcontroller.Answer{}, nil
}

func (r *rules) Covering(context.Context, *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error) {
	return podunavailablebudgettest.Budget(), nil
}

func (r *rules) Of(_ context.Context, _ *corev1.Pod, _ string) (*appsv1beta1.PersistentPodState, error) {
	return r.State, nil
}

func (r *rules) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*appsv1alpha1.PodProbeMarkerList).Items = r.Markers
	return nil
}

// FuzzPods: whatever a new pod and the objects that select it contain, the patch of all steps applies and
// makes a pod with the containers and volumes that it had. Sent again by the other entry, it does not change.
// A refusal has a reason, and gives the place back that was booked; a dry run books none. Answers have a bound.
func FuzzPods(f *testing.F) {
	const given = `{"metadata":{"name":"web-0","labels":{"app":"web"},"annotations":{"` + pub.UsingEnhancedLiveness + `":"true","` + pub.LaunchPriority + `":"Ordered"},` +
		`"ownerReferences":[{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","name":"web","uid":"u","controller":true}]},` +
		`"spec":{"containers":[{"name":"app","image":"i","env":[{"name":"KRUISE_CONTAINER_PRIORITY","value":"5"}],"livenessProbe":{"exec":{"command":["a"]}},"resources":{"limits":{"cpu":"1"}}},` +
		`{"name":"more","image":"i"}],"volumes":[{"name":"v","emptyDir":{}}],"nodeSelector":{"a":"b"}}}`
	const selecting = `{"sidecarSet":{"containers":[{"name":"side","image":"s","podInjectPolicy":"BeforeAppContainer","livenessProbe":{"tcpSocket":{"port":80}},"shareVolumePolicy":{"type":"enabled"},` +
		`"env":[{"name":"KRUISE_CONTAINER_PRIORITY","value":"9"}]}],"initContainers":[{"name":"init","image":"s"}],"volumes":[{"name":"w","emptyDir":{}}],` +
		`"patchPodMetadata":[{"annotations":{"c":"d"},"patchPolicy":"MergePatchJson"}]},` +
		`"subset":{"name":"a","tolerations":[{"key":"t"}],"requiredNodeSelectorTerm":{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]},` +
		`"preferredNodeSelectorTerms":[{"weight":1,"preference":{"matchExpressions":[{"key":"z","operator":"Exists"}]}}],"patch":{"metadata":{"labels":{"subset":"a"}}}},` +
		`"state":{"metadata":{"name":"places"},"spec":{"requiredPersistentTopology":{"keys":["host"]},"preferredPersistentTopology":[{"weight":5,"preference":{"keys":["zone"]}}]},` +
		`"status":{"podStates":{"web-0":{"nodeTopologyLabels":{"host":"h","zone":"z"}}}}},` +
		`"markers":[{"metadata":{"name":"m","namespace":"shop"},"spec":{"selector":{"matchLabels":{"app":"web"}},"probes":[{"name":"idle","containerName":"app","podConditionType":"a/b","probe":{"exec":{"command":["x"]}}}]}}]}`
	f.Add(given, selecting, []byte{}, []byte{}, false)
	f.Add(given, selecting, []byte("\x02\x01\x00\x01\x03"), []byte("\x03\x00\x00\x01\x02\x00"), false)
	f.Add(given, selecting, []byte("a pod with other fields"), []byte{}, true)
	f.Add(`{"metadata":{"generateName":"web-"},"spec":{"containers":[{"name":"app"}]}}`, `{"subset":{"name":"a"}}`, []byte{}, []byte{}, false)
	f.Fuzz(func(t *testing.T, text, selecting string, changes, ruleChanges []byte, dry bool) {
		text = fuzzing.Edit(text, changes, "name", "generateName", "annotations", "labels", "env", "value", "valueFrom", "containers", "initContainers", "volumes",
			"livenessProbe", "readinessGates", "affinity", "nodeSelector", "tolerations", "ownerReferences", pub.LaunchPriority, pub.LaunchCompleted, pub.MatchedWorkloadSpread,
			pub.SidecarSetInjectedList, pub.SidecarSetHash, pub.LivenessProbes, pub.PodProbes, pub.UsingEnhancedLiveness)
		selecting = fuzzing.Edit(selecting, ruleChanges, "name", "env", "patch", "tolerations", "volumes", "keys", "probes", "weight", "containers", "annotations", "labels")
		r, before := &rules{}, &corev1.Pod{}
		if json.Unmarshal([]byte(selecting), r) != nil || json.Unmarshal([]byte(text), before) != nil {
			return
		}
		text = fuzzing.JSON(before) // as an API server writes it
		spreads := pod.NewSpreads(pod.SpreadOptions{Matcher: r, Booker: r, Versioned: workloadspread.ParseVersioned("deployment"), Log: logr.Discard(), Now: time.Now})
		chain := newPodChain(true, spreads, &pod.Budgets{Guard: r}, pod.NewSidecars(r, true, func() time.Time { return time.Unix(1_760_000_000, 0) }),
			pod.States(r), pod.Liveness(), pod.Travelling(r))

		send := func(object string, again bool) (string, bool) {
			answer := mutatePod(chain, again)(t.Context(), admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: admissionapi.Create,
				Namespace: "shop", DryRun: &dry, Object: runtime.RawExtension{Raw: []byte(object)}}})
			if size := len(fuzzing.JSON(answer)); size > mostPodAnswer+4*(len(object)+len(selecting)) {
				t.Errorf("the answer to a pod of %d bytes has %d bytes", len(object), size)
			}
			if !answer.Allowed {
				if answer.Result == nil || answer.Result.Message == "" || answer.Result.Code < 400 {
					t.Errorf("%s is refused without a reason: %+v", object, answer.Result)
				}
				return "", false
			}
			if len(answer.Patches) == 0 {
				return object, true
			}
			patch, err := jsonpatch.DecodePatch([]byte(fuzzing.JSON(answer.Patches)))
			if err != nil {
				t.Fatalf("%s is no patch: %v", fuzzing.JSON(answer.Patches), err)
			}
			made, err := patch.Apply([]byte(object))
			if err != nil {
				t.Fatalf("%s does not apply to %s: %v", fuzzing.JSON(answer.Patches), object, err)
			}
			return string(made), true
		}
		made, admitted := send(text, false)
		if dry && r.booked > 0 || admitted && r.released > 0 || !admitted && r.booked != r.released {
			t.Errorf("dry run %t, admitted %t: %d places are booked, and %d given back", dry, admitted, r.booked, r.released)
		}
		if !admitted {
			return
		}
		after := &corev1.Pod{}
		if err := json.Unmarshal([]byte(made), after); err != nil {
			t.Fatalf("%s is no pod: %v", made, err)
		}
		for _, name := range names(before.Spec.Containers) {
			if !slices.Contains(names(after.Spec.Containers), name) {
				t.Errorf("container %s of %s is gone in %s", name, text, made)
			}
		}
		for i := range before.Spec.Volumes {
			if !slices.ContainsFunc(after.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == before.Spec.Volumes[i].Name }) {
				t.Errorf("volume %s of %s is gone in %s", before.Spec.Volumes[i].Name, text, made)
			}
		}
		if all := append(names(after.Spec.Containers), names(after.Spec.InitContainers)...); len(all) > len(slices.Compact(slices.Sorted(slices.Values(all)))) {
			return // no API server accepts a name twice
		}
		if again, admitted := send(made, true); !admitted || !jsonpatch.Equal([]byte(again), []byte(made)) {
			t.Errorf("%s with %s\nbecame %s\nand sent again %s", text, selecting, made, again)
		}
	})
}

func names(containers []corev1.Container) (all []string) {
	for i := range containers {
		all = append(all, containers[i].Name)
	}
	return all
}

// FuzzDisruptions: each deletion, eviction or change of a pod is allowed, or refused with a reason that has a
// bound. A dry run writes and tells nothing, and allows all that is then allowed. What was booked is written
// once, and is allowed again.
func FuzzDisruptions(f *testing.F) {
	if err := policyv1beta1.AddToScheme(scheme.Scheme); err != nil {
		f.Fatal(err)
	}
	f.Add(fuzzing.JSON(podunavailablebudgettest.Pod("web-0")), fuzzing.JSON(podunavailablebudgettest.Budget()), "", []byte{}, []byte{}, uint8(0))
	for i, eviction := range []string{`{"metadata":{"name":"web-0"},"deleteOptions":{"dryRun":["All"]}}`, `{}`, `{"metadata":{"name":5}}`} {
		f.Add(fuzzing.JSON(podunavailablebudgettest.Pod("web-0")), fuzzing.JSON(podunavailablebudgettest.Budget(podunavailablebudgettest.Counted(5, 4, 5))), eviction,
			[]byte("\x02\x01\x00\x01\x03"), []byte{}, uint8(i))
		f.Add(fuzzing.JSON(podunavailablebudgettest.Pod("web-0", podunavailablebudgettest.NotReady)), fuzzing.JSON(podunavailablebudgettest.Budget(podunavailablebudgettest.Counted(5, 5, 5))), eviction,
			[]byte("another image of a container"), []byte("\x03\x02\x01\x00"), uint8(i+3))
	}
	f.Fuzz(func(t *testing.T, text, budgetText, eviction string, changes, budgetChanges []byte, choice uint8) {
		changed := fuzzing.Edit(text, changes, "image", "labels", "annotations", "resources", "conditions", pub.NoProtect, pub.RelatedBudget)
		budgetText = fuzzing.Edit(budgetText, budgetChanges, "maxUnavailable", "minAvailable", "selector", "targetRef", "status", "disruptedPods", "unavailablePods",
			"currentAvailable", "desiredAvailable", "unavailableAllowed", "totalReplicas", "observedGeneration", "annotations", pub.BudgetOperations, pub.BudgetIgnoredPods, pub.BudgetWindows)
		stored, budget := &corev1.Pod{}, &policyv1beta1.PodUnavailableBudget{}
		if json.Unmarshal([]byte(text), stored) != nil || json.Unmarshal([]byte(budgetText), budget) != nil || stored.Name == "" || budget.Name == "" {
			return
		}
		stored.Namespace, budget.Namespace, stored.UID, stored.ResourceVersion, budget.ResourceVersion = "shop", "shop", "u", "", ""
		stored.DeletionTimestamp, budget.DeletionTimestamp = nil, nil
		status := &budget.Status // as a controller writes it
		status.UnavailableAllowed = int32(min(max(int64(status.CurrentAvailable)-int64(status.DesiredAvailable), 0), math.MaxInt32))
		text = fuzzing.JSON(stored)

		writes, told := 0, 0
		live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(stored, budget).WithStatusSubresource(budget).Build(), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(name).Patch(ctx, o, patch, options...)
			}})
		if err := live.Get(t.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
			t.Fatal(err)
		}
		index := &podunavailablebudgetcontroller.Index{}
		index.Set(budget)
		guard := podunavailablebudgetcontroller.NewGuard(live, live, index, podunavailablebudgetcontroller.NewOwners(live, meta.NewDefaultRESTMapper(nil), clock.RealClock{}),
			podunavailablebudgettest.AllGates, func(context.Context) error { return nil }, func() time.Time { return podunavailablebudgettest.Now })
		note := func(*pod.Disruption, string) { told++ }
		handle := validatePod(pod.NewDisruptions((&pod.Budgets{Guard: guard, Cached: live, Tell: note, Passed: note}).Check()), live, func(string) bool { return true })

		request := admissionapi.AdmissionRequest{Operation: admissionapi.Delete, Namespace: "shop", Name: stored.Name, OldObject: runtime.RawExtension{Raw: []byte(text)}}
		switch choice % 3 {
		case 1:
			request.Operation, request.SubResource = admissionapi.Create, "eviction"
			request.OldObject.Raw, request.Object.Raw = nil, []byte(eviction)
		case 2:
			request.Operation, request.Object.Raw = admissionapi.Update, []byte(changed)
		}
		request.UserInfo.Username = []string{"alice", "system:kube-scheduler", "system:kube-controller-manager"}[choice/3%3]
		ask := func(dry bool) bool {
			writes, told = 0, 0
			request.DryRun = &dry
			answer := handle(t.Context(), admission.Request{AdmissionRequest: request})
			if !answer.Allowed && (answer.Result == nil || answer.Result.Message == "" || answer.Result.Code < 400) || len(fuzzing.JSON(answer)) > mostPodAnswer {
				t.Errorf("%s of %s with %s is answered by %s", request.Operation, text, budgetText, fuzzing.JSON(answer))
			}
			if dry && writes+told > 0 || writes > 1 {
				t.Errorf("%s of %s with %s, dry %t: %d writes, %d told", request.Operation, text, budgetText, dry, writes, told)
			}
			return answer.Allowed
		}
		would := ask(true)
		if allowed := ask(false); allowed && !would {
			t.Errorf("%s of %s with %s is allowed, and was not in a dry run", request.Operation, text, budgetText)
		} else if allowed && writes > 0 && !ask(false) {
			t.Errorf("%s of %s with %s was booked, and is refused then", request.Operation, text, budgetText)
		}
	})
}
