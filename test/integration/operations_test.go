//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/test/story"
)

var served = []string{"v1alpha1", "v1beta1"}

// good are manifests that are accepted, by kind.
var good = map[string]string{
	"ContainerRecreateRequest": `{metadata: {namespace: default}, spec: {podName: recreated, containers: [{name: app}]}}`,
	"ImagePullJob":             `{metadata: {namespace: default}, spec: {image: "shop/app:2", selector: {names: [nowhere]}, completionPolicy: {}}}`,
	"ImageListPullJob":         `{metadata: {namespace: default}, spec: {images: ["a:1", "b:1"], selector: {names: [nowhere]}, completionPolicy: {}}}`,
	"NodeImage":                `{metadata: {labels: {apps.kruise.io/fake-nodeimage: ""}}, spec: {images: {shop/app: {tags: [{tag: "2", pullPolicy: {ttlSecondsAfterFinished: 60}}]}}}}`,
	"WorkloadSpread":           `{metadata: {namespace: default}, spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: nowhere}, subsets: [{name: a, maxReplicas: 3}, {name: b}]}}`,
	"SidecarSet":               `{spec: {selector: {matchLabels: {side: car}}, containers: [{name: side, image: "example.com/side:1"}]}}`,
}

// operation returns a good manifest of the kind, merged with another in YAML.
func operation(version, kind, name, over string) *unstructured.Unstructured {
	object, extra := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(good[kind]), &object), yaml.Unmarshal([]byte(over), &extra)); err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{Object: mergeInto(object, extra)}
	u.SetAPIVersion("apps.kruise.io/" + version)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

// filled waits until the manager has written the facts about the pod into a request; other kinds are complete
// when they are created.
func filled(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if u.GetKind() != "ContainerRecreateRequest" {
		return
	}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		if u.GetLabels()["crr.apps.kruise.io/node-name"] != "recreated" {
			return errors.New("the request is not filled in")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// recreatable makes the pod of the manifests, with a container that runs, one that does not yet, and an init
// container, on a virtual node of a serverless provider.
func recreatable(t *testing.T) *corev1.Pod {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "recreated", Labels: map[string]string{"type": "virtual-kubelet"}}}
	hook := &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"stop"}}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "recreated"},
		Spec: corev1.PodSpec{NodeName: "recreated", TerminationGracePeriodSeconds: new(int64(45)),
			InitContainers: []corev1.Container{{Name: "init", Image: "i"}},
			Containers:     []corev1.Container{{Name: "app", Image: "i", Lifecycle: hook}, {Name: "new", Image: "i"}}}}
	nowhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unscheduled"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}}}
	for _, object := range []client.Object{node, pod, nowhere} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "new"}, {Name: "app", ContainerID: "containerd://1", RestartCount: 2,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestBadOperations: invalid objects are refused, in both versions unless one is named, with the field or the
// rule: by the webhooks with 400, by the schema with 422 (CRR-022 to 034, IMG-023 to 026, IMG-033 to 046).
func TestBadOperations(t *testing.T) {
	recreatable(t)
	const crr, job, list, node = "ContainerRecreateRequest", "ImagePullJob", "ImageListPullJob", "NodeImage"
	tags := func(tags string) string { return `{spec: {images: {shop/app: {tags: [` + tags + `]}}}}` }
	tests := map[string]struct {
		kind string
		over string
		code int32
		text string
	}{
		"no pod named (CRR-002, CRR-022)": {crr, `{spec: {podName: ""}}`, 400, "podName can not be empty"},
		"podName left out (CRR-022)":      {crr, `{spec: {podName: null}}`, 400, "podName can not be empty"},
		"no containers (CRR-023)":         {crr, `{spec: {containers: []}}`, 400, "containers list can not be null"},
		"a short deadline (CRR-024)": {crr, `{spec: {activeDeadlineSeconds: 2}}`, 400,
			"activeDeadlineSeconds can not be less than 3s"},
		"negative TTL (CRR-025)": {crr, `{spec: {ttlSecondsAfterFinished: -1}}`, 400,
			"ttlSecondsAfterFinished must be non-negative integer"},
		"negative grace period (CRR-025)": {crr, `{spec: {strategy: {terminationGracePeriodSeconds: -1}}}`, 400,
			"terminationGracePeriodSeconds must be non-negative integer"},
		"negative unready period (CRR-025)": {crr, `{spec: {strategy: {unreadyGracePeriodSeconds: -1}}}`, 400,
			"unreadyGracePeriodSeconds must be non-negative integer"},
		"negative minStartedSeconds (CRR-025)": {crr, `{spec: {strategy: {minStartedSeconds: -1}}}`, 400,
			"minStartedSeconds must be non-negative integer"},
		"an unknown policy (CRR-026)": {crr, `{spec: {strategy: {failurePolicy: Retry}}}`, 400,
			"unknown failurePolicy \"Retry\""},
		"no such pod (CRR-027)":        {crr, `{spec: {podName: nobody}}`, 400, "no found Pod named nobody"},
		"a pod without node (CRR-029)": {crr, `{spec: {podName: unscheduled}}`, 400, "in a pending Pod"},
		"a container twice (CRR-031)": {crr, `{spec: {containers: [{name: app}, {name: app}]}}`, 400,
			"can not recreate app multi times"},
		"a context of one's own (CRR-010, CRR-032)": {crr,
			`{spec: {containers: [{name: app, statusContext: {containerID: "c://x", restartCount: 0}}]}}`, 400,
			"statusContext of container app are read-only"},
		"ports of one's own (CRR-032)": {crr,
			`{spec: {containers: [{name: app, ports: [{containerPort: 1, protocol: TCP}]}]}}`, 400, "read-only"},
		"no such container (CRR-033)": {crr, `{spec: {containers: [{name: nobody}]}}`, 400,
			"container nobody not found in Pod"},
		"a container that never ran (CRR-033)": {crr, `{spec: {containers: [{name: new}]}}`, 400,
			"no containerID in new containerStatus"},
		"an init container (CRR-034)": {crr, `{spec: {containers: [{name: init}]}}`, 400,
			"container init is an init container"},
		"image left out (IMG-036)":                   {job, `{spec: {image: null}}`, 422, "spec.image"},
		"no image (IMG-036)":                         {job, `{spec: {image: ""}}`, 400, "spec.image"},
		"no image name (IMG-036)":                    {job, `{spec: {image: "a b"}}`, 400, "spec.image"},
		"completionPolicy of another type (IMG-040)": {job, `{spec: {completionPolicy: Never}}`, 422, "spec.completionPolicy"},
		"an unknown completion type (IMG-040)": {job, `{spec: {completionPolicy: {type: Once}}}`, 400,
			"spec.completionPolicy.type"},
		"names and labels (IMG-034)": {job, `{spec: {selector: {matchLabels: {a: b}}}}`, 400,
			"spec.selector.names excludes matchLabels"},
		"a name twice (IMG-034)": {job, `{spec: {selector: {names: [a, a]}}}`, 400,
			"spec.selector.names has a name twice"},
		"a bad node selector (IMG-034)": {job,
			`{spec: {selector: {names: null, matchExpressions: [{key: a, operator: Near}]}}}`, 400, "spec.selector"},
		"nodes and pods (IMG-035)": {job, `{spec: {podSelector: {matchLabels: {a: b}}}}`, 400,
			"spec.selector and spec.podSelector exclude each other"},
		"a bad pod selector (IMG-035)": {job,
			`{spec: {selector: null, podSelector: {matchExpressions: [{key: a, operator: Near}]}}}`, 400, "spec.podSelector"},
		"parallelism in percent (IMG-037)": {job, `{spec: {parallelism: 10%}}`, 400,
			"spec.parallelism: does not support percentage value"},
		"parallelism that is none (IMG-037)": {job, `{spec: {parallelism: many}}`, 400, "spec.parallelism"},
		"negative parallelism (IMG-037)":     {job, `{spec: {parallelism: -1}}`, 400, "spec.parallelism"},
		"a deadline below the timeout (IMG-038)": {job,
			`{spec: {completionPolicy: {activeDeadlineSeconds: 599}, pullPolicy: {timeoutSeconds: 600}}}`, 400,
			"spec.completionPolicy.activeDeadlineSeconds (599) must be greater than spec.pullPolicy.timeoutSeconds (600)"},
		"Never with a deadline (IMG-039)": {job, `{spec: {completionPolicy: {type: Never, activeDeadlineSeconds: 900}}}`,
			400, "spec.completionPolicy"},
		"Never with a TTL (IMG-039)": {job, `{spec: {completionPolicy: {type: Never, ttlSecondsAfterFinished: 900}}}`,
			400, "spec.completionPolicy"},
		"an unknown pull policy (IMG-014)": {job, `{spec: {imagePullPolicy: Never}}`, 400, "spec.imagePullPolicy"},
		"images left out (IMG-045)":        {list, `{spec: {images: null}}`, 422, "spec.images"},
		"no images (IMG-045)":              {list, `{spec: {images: []}}`, 400, "spec.images: image can not be empty"},
		"an image that is none (IMG-045)":  {list, `{spec: {images: ["a:1", "b c"]}}`, 400, "spec.images[1]"},
		"the same image, written differently (IMG-046)": {list, `{spec: {images: [nginx, "docker.io/library/nginx:latest"]}}`, 400,
			"spec.images[1]"},
		"a list with parallelism in percent (IMG-045)": {list, `{spec: {parallelism: 10%}}`, 400, "spec.parallelism"},
		"a list for nodes and pods (IMG-045)":          {list, `{spec: {podSelector: {}}}`, 400, "spec.podSelector"},
		"a list of type Never with a deadline (IMG-045)": {list, `{spec: {completionPolicy: {type: Never, activeDeadlineSeconds: 900}}}`,
			400, "spec.completionPolicy"},
		"a name of an image that is none (IMG-026)": {node, `{spec: {images: {"A B": {tags: []}}}}`, 400,
			`"A B" is no name of an image`},
		"a tag in the name (IMG-026)": {node, `{spec: {images: {"shop/app:2": {tags: []}}}}`, 400,
			"belongs into tags"},
		"an image without tags (IMG-024)": {node, `{spec: {images: {shop/app: {tags: null}}}}`, 422,
			"spec.images.shop/app.tags"},
		"an empty tag (IMG-024)": {node, tags(`{tag: "", pullPolicy: {ttlSecondsAfterFinished: 1}}`), 400,
			"shop/app has an empty tag"},
		"a tag twice (IMG-024)": {node,
			tags(`{tag: a, pullPolicy: {ttlSecondsAfterFinished: 1}}, {tag: a, pullPolicy: {ttlSecondsAfterFinished: 1}}`), 400,
			"shop/app:a is listed twice"},
		"a tag that nobody removes (IMG-025)": {node, tags(`{tag: a}`), 400,
			"shop/app:a: pullPolicy.ttlSecondsAfterFinished is missing"},
		"a negative version (IMG-025)": {node, tags(`{tag: a, version: -1, pullPolicy: {ttlSecondsAfterFinished: 1}}`),
			400, "version must not be negative, it is -1"},
		"a negative time (IMG-026)": {node, tags(`{tag: a, pullPolicy: {ttlSecondsAfterFinished: -1}}`), 400,
			"pullPolicy.ttlSecondsAfterFinished must not be negative, it is -1"},
		"a tag with an unknown pull policy (IMG-014)": {node,
			tags(`{tag: a, imagePullPolicy: Never, pullPolicy: {ttlSecondsAfterFinished: 1}}`), 400, "shop/app:a: imagePullPolicy"},
		"a request with a number in quotes (CRR-016)":      {crr, `{spec: {activeDeadlineSeconds: "300"}}`, 422, "activeDeadlineSeconds"},
		"a job with a timeout in quotes (IMG-041)":         {job, `{spec: {pullPolicy: {timeoutSeconds: "300"}}}`, 422, "timeoutSeconds"},
		"a list with a selector of another kind (IMG-041)": {list, `{spec: {selector: {names: web}}}`, 422, "names"},
	}
	for name, test := range tests {
		for _, version := range served {
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Create(t.Context(), operation(version, test.kind, "bad", test.over), client.DryRunAll)
				var status apierrors.APIStatus
				if !errors.As(err, &status) || status.Status().Code != test.code || !strings.Contains(err.Error(), test.text) {
					t.Errorf("got %v, want code %d and %q", err, test.code, test.text)
				}
			})
		}
	}
	// CRR-016: rules that only the schema of v1beta1 has; the webhooks do not check them.
	request := operation("v1beta1", crr, "schema", "")
	if err := kube.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	for version, code := range map[string]int32{"v1alpha1": 0, "v1beta1": 422} {
		got := operation(version, crr, "schema", "")
		err := kube.Status().Patch(t.Context(), got,
			client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Dreaming"}}`)), client.DryRunAll)
		if apierrors.IsInvalid(err) != (code == 422) || err != nil && !strings.Contains(err.Error(), "status.phase") {
			t.Errorf("CRR-016 %s: got %v, want code %d and the phase", version, err, code)
		}
	}
	if err := kube.Delete(t.Context(), request); err != nil {
		t.Errorf("deleting the request: %v", err)
	}
}

// TestOperationsAreCompleted: what the system writes is the same for both versions, written or read (CRR-011,
// CRR-012, CRR-035 to 038, CRR-145, IMG-021, IMG-022, IMG-031, IMG-032, IMG-045, IMG-195).
func TestOperationsAreCompleted(t *testing.T) {
	pod := recreatable(t)
	const limits = `pullPolicy: {backoffLimit: 3, timeoutSeconds: 600}, completionPolicy: {type: Always}`
	tests := map[string]struct{ kind, over, spec, metadata string }{
		"a request": {"ContainerRecreateRequest", `{metadata: {labels: {a: b, crr.apps.kruise.io/node-name: forged}}}`,
			`{podName: recreated, strategy: {failurePolicy: Fail, terminationGracePeriodSeconds: 45}, containers: [{name: app,
				preStop: {exec: {command: [stop]}}, statusContext: {containerID: "containerd://1", restartCount: 2}}]}`,
			`{labels: {a: b, type: virtual-kubelet, crr.apps.kruise.io/active: "true", crr.apps.kruise.io/node-name: recreated, crr.apps.kruise.io/pod-uid: "` + string(pod.UID) + `"}}`},
		"what a request says stays": {"ContainerRecreateRequest", `{spec: {activeDeadlineSeconds: 300, strategy: {failurePolicy: Ignore, forceRecreate: true, terminationGracePeriodSeconds: 0}}}`,
			`{podName: recreated, activeDeadlineSeconds: 300, strategy: {failurePolicy: Ignore, forceRecreate: true, terminationGracePeriodSeconds: 0}, containers: [{name: app,
				preStop: {exec: {command: [stop]}}, statusContext: {containerID: "containerd://1", restartCount: 2}}]}`,
			`{labels: {type: virtual-kubelet, crr.apps.kruise.io/active: "true", crr.apps.kruise.io/node-name: recreated, crr.apps.kruise.io/pod-uid: "` + string(pod.UID) + `"}}`},
		"what kubectl kruise writes (CRR-169)": {"ContainerRecreateRequest",
			`{spec: {activeDeadlineSeconds: 300, ttlSecondsAfterFinished: 1800,
				strategy: {failurePolicy: Fail, unreadyGracePeriodSeconds: 3, minStartedSeconds: 3}}}`,
			`{podName: recreated, activeDeadlineSeconds: 300, ttlSecondsAfterFinished: 1800, strategy: {failurePolicy: Fail, unreadyGracePeriodSeconds: 3,
				minStartedSeconds: 3, terminationGracePeriodSeconds: 45}, containers: [{name: app, preStop: {exec: {command: [stop]}}, statusContext: {containerID: "containerd://1", restartCount: 2}}]}`,
			`{labels: {type: virtual-kubelet, crr.apps.kruise.io/active: "true", crr.apps.kruise.io/node-name: recreated, crr.apps.kruise.io/pod-uid: "` + string(pod.UID) + `"}}`},
		"a job": {"ImagePullJob", `{spec: {completionPolicy: {type: Never}, parallelism: "3"}}`,
			`{image: "shop/app:2", selector: {names: [nowhere]}, parallelism: "3", imagePullPolicy: IfNotPresent, pullPolicy: {backoffLimit: 3, timeoutSeconds: 600}, completionPolicy: {type: Never}}`,
			`{finalizers: [apps.kruise.io/deletion-protection]}`},
		"a list": {"ImageListPullJob", `{spec: {completionPolicy: {type: Never}}}`,
			`{images: ["a:1", "b:1"], selector: {names: [nowhere]}, pullPolicy: {backoffLimit: 3, timeoutSeconds: 600}, completionPolicy: {type: Never}}`, `{}`},
		"a list that ends": {"ImageListPullJob", ``, `{images: ["a:1", "b:1"], selector: {names: [nowhere]}, ` + limits + `}`, `{}`},
		"a NodeImage": {"NodeImage",
			`{spec: {images: {shop/app: {tags: [{tag: "2", pullPolicy: {ttlSecondsAfterFinished: 60, backoffLimit: -1}},
				{tag: "1", createdAt: "2026-01-01T00:00:00Z", imagePullPolicy: Always, pullPolicy: {ttlSecondsAfterFinished: 60, timeoutSeconds: 5}}]}}}}`,
			`{images: {shop/app: {tags: [{tag: "1", createdAt: "2026-01-01T00:00:00Z", imagePullPolicy: Always, pullPolicy: {ttlSecondsAfterFinished: 60, timeoutSeconds: 5, backoffLimit: 3}},
				{tag: "2", createdAt: now, imagePullPolicy: IfNotPresent, pullPolicy: {ttlSecondsAfterFinished: 60, timeoutSeconds: 600, backoffLimit: 3}}]}}}`,
			`{labels: {apps.kruise.io/fake-nodeimage: ""}}`},
	}
	for name, test := range tests {
		for i, version := range served {
			t.Run(name+" "+version, func(t *testing.T) {
				created := operation(version, test.kind, fmt.Sprintf("completed-%s-%d", strings.ToLower(test.kind), i), test.over)
				if err := kube.Create(t.Context(), created); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := kube.Delete(context.Background(), created); err != nil {
						t.Errorf("deleting %s: %v", created.GetName(), err)
					}
					if err := wait(func() error { return gone(created) }); err != nil {
						t.Errorf("CRR-140, IMG-080: %v", err)
					}
				}()
				filled(t, created)
				want := []any{fromYAML(t, test.spec), fromYAML(t, test.metadata)}
				for _, other := range served {
					read := created
					if other != version {
						read = operation(other, test.kind, created.GetName(), "")
						if err := kube.Get(t.Context(), client.ObjectKeyFromObject(created), read); err != nil {
							t.Fatal(err)
						}
					}
					if diff := cmp.Diff(want, []any{plain(t, read.Object["spec"]), written(t, read)}); diff != "" {
						t.Errorf("read in %s (-want +got):\n%s", other, diff)
					}
				}
			})
		}
	}
}

// gone returns an error as long as the object is there.
func gone(object *unstructured.Unstructured) error {
	err := kube.Get(context.Background(), client.ObjectKeyFromObject(object), object.DeepCopy())
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s %s is still there: %w", object.GetKind(), object.GetName(), err)
}

func fromYAML(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// plain returns a part of an object as a YAML decoder does, with the word now for all times that are not
// those of the manifests.
func plain(t *testing.T, part any) any {
	t.Helper()
	data, err := yaml.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if at := strings.Index(line, "createdAt: "); at >= 0 && !strings.Contains(line, "2026-01-01T00:00:00Z") {
			lines[i] = line[:at] + "createdAt: now"
		}
	}
	return fromYAML(t, strings.Join(lines, "\n"))
}

// written returns the metadata that the webhooks may write; the controllers' own label of lists is left out.
func written(t *testing.T, object *unstructured.Unstructured) any {
	t.Helper()
	metadata := map[string]any{}
	labels := object.GetLabels()
	delete(labels, "controller-revision-hash")
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		metadata["finalizers"] = finalizers
	}
	if annotations := object.GetAnnotations(); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return plain(t, metadata)
}

// TestOperationsThatMayNotChange: specs of requests, labels that say which pod, secrets of jobs; in both
// versions (CRR-045, CRR-046, CRR-048, IMG-033).
func TestOperationsThatMayNotChange(t *testing.T) {
	recreatable(t)
	tests := map[string]struct {
		kind, body string
		code       int32
		text       string
	}{
		"the deadline of a request": {"ContainerRecreateRequest", `{"spec":{"activeDeadlineSeconds":900}}`, 403,
			"spec of ContainerRecreateRequest is immutable"},
		"the pod of a request": {"ContainerRecreateRequest", `{"metadata":{"labels":{"crr.apps.kruise.io/pod-uid":"x"}}}`, 403,
			"crr.apps.kruise.io/pod-uid"},
		"the node of a request": {"ContainerRecreateRequest", `{"metadata":{"labels":{"crr.apps.kruise.io/node-name":null}}}`, 403,
			"crr.apps.kruise.io/node-name"},
		"other labels": {"ContainerRecreateRequest", `{"metadata":{"labels":{"crr.apps.kruise.io/active":null,"x":"y"}}}`, 0,
			""},
		"the secrets of a job": {"ImagePullJob", `{"spec":{"pullSecrets":["other"]}}`, 400, "spec.pullSecrets is immutable"},
		"the width of a job":   {"ImagePullJob", `{"spec":{"parallelism":5}}`, 0, ""},
		"an image of a list":   {"ImageListPullJob", `{"spec":{"images":["c:1"]}}`, 0, ""},
	}
	for i, version := range served {
		objects := map[string]*unstructured.Unstructured{}
		for _, kind := range []string{"ContainerRecreateRequest", "ImagePullJob", "ImageListPullJob"} {
			objects[kind] = operation(version, kind, fmt.Sprintf("fixed-%d", i), "")
			if err := kube.Create(t.Context(), objects[kind]); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = kube.Delete(context.Background(), objects[kind]) }()
			filled(t, objects[kind])
		}
		for name, test := range tests {
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Patch(t.Context(), objects[test.kind].DeepCopy(),
					client.RawPatch("application/merge-patch+json", []byte(test.body)), client.DryRunAll)
				var status apierrors.APIStatus
				switch {
				case test.code == 0 && err != nil, test.code != 0 && err == nil:
					t.Errorf("got %v, want code %d", err, test.code)
				case err != nil && (!errors.As(err, &status) || status.Status().Code != test.code ||
					!strings.Contains(err.Error(), test.text)):
					t.Errorf("not %d with %q: %v", test.code, test.text, err)
				}
			})
		}
	}
}

// TestRequestsBetweenReleases: a manager or daemon of the release before uses v1alpha1, with annotations, and
// one of this release v1beta1, with the status. Each reads what the other wrote, and neither removes it
// (CRR-017, CRR-145 to 150, CRR-152).
func TestRequestsBetweenReleases(t *testing.T) {
	recreatable(t)
	const acquired, snapshot = "crr.apps.kruise.io/unready-acquired", "crr.apps.kruise.io/sync-container-statuses"
	view := func(version string) *unstructured.Unstructured {
		t.Helper()
		u := operation(version, "ContainerRecreateRequest", "between", "")
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	request := operation("v1beta1", "ContainerRecreateRequest", "between", `{metadata: {annotations: {mine: kept}}}`)
	if err := kube.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kube.Delete(context.Background(), request) }()
	merge := func(version, body string, status bool) {
		t.Helper()
		u := operation(version, "ContainerRecreateRequest", "between", "")
		var err error
		if patch := client.RawPatch("application/merge-patch+json", []byte(body)); status {
			err = kube.Status().Patch(t.Context(), u, patch)
		} else {
			err = kube.Patch(t.Context(), u, patch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	conditions := func() map[string]string {
		list, _, _ := unstructured.NestedSlice(view("v1beta1").Object, "status", "conditions")
		found := map[string]string{}
		for _, item := range list {
			c := item.(map[string]any)
			found[c["type"].(string)] = fmt.Sprint(c["status"], " ", c["lastTransitionTime"])
		}
		return found
	}

	// The new manager writes the phase; the old daemon reads it, and writes its part.
	merge("v1beta1", `{"status":{"phase":"Pending","containerStatusSnapshot":[{"name":"app","ready":true,"restartCount":3,"containerID":"containerd://2"}],"conditions":[
		{"type":"PreRecreateGrace","status":"True","reason":"PreRecreateGrace","message":"m","lastTransitionTime":"2026-01-01T10:00:00Z"},
		{"type":"Other","status":"False","reason":"R","message":"m","lastTransitionTime":"2026-01-01T09:00:00Z"}]}}`, true)
	old := view("v1alpha1").GetAnnotations()
	if old[acquired] != "2026-01-01T10:00:00Z" ||
		old[snapshot] != `[{"name":"app","ready":true,"restartCount":3,"containerID":"containerd://2"}]` || old["mine"] != "kept" {
		t.Errorf("CRR-148: got annotations %v, want the time, the snapshot and the user's own", old)
	}
	merge("v1alpha1",
		`{"status":{"phase":"Pending","containerRecreateStates":[{"name":"app","phase":"Pending","message":"from an old daemon"}]}}`, true)
	both := map[string]string{"PreRecreateGrace": "True 2026-01-01T10:00:00Z", "Other": "False 2026-01-01T09:00:00Z"}
	if diff := cmp.Diff(both, conditions()); diff != "" {
		t.Errorf("CRR-149: %s", diff)
	}
	now := view("v1beta1")
	if states, _, _ := unstructured.NestedSlice(now.Object, "status", "containerRecreateStates"); len(states) != 1 ||
		states[0].(map[string]any)["message"] != "from an old daemon" {
		t.Errorf("CRR-152: got states %v, want that of an old daemon alone", states)
	}
	if kept, _, _ := unstructured.NestedSlice(now.Object, "status", "containerStatusSnapshot"); len(kept) != 1 {
		t.Errorf("CRR-152: the snapshot is lost: %v", now.Object["status"])
	}
	if diff := cmp.Diff(map[string]string{"mine": "kept"}, now.GetAnnotations()); diff != "" {
		t.Errorf("CRR-150: %s", diff)
	}

	// The old manager writes; the new daemon reads.
	merge("v1beta1", `{"status":{"conditions":null,"containerStatusSnapshot":null}}`, true)
	if left := view("v1alpha1").GetAnnotations(); left[acquired] != "" || left[snapshot] != "" {
		t.Errorf("CRR-150: stale values: %v", left)
	}
	merge("v1alpha1", `{"metadata":{"finalizers":["example.com/held"],"annotations":{"`+acquired+`":"2026-01-02T10:00:00Z","`+snapshot+
		`":"[{\"name\":\"app\",\"ready\":false,\"restartCount\":4,\"containerID\":\"containerd://3\"}]"}}}`, false)
	if diff := cmp.Diff(map[string]string{"PreRecreateGrace": "True 2026-01-02T10:00:00Z"}, conditions()); diff != "" {
		t.Errorf("CRR-147: %s", diff)
	}
	now = view("v1beta1")
	taken, _, _ := unstructured.NestedSlice(now.Object, "status", "containerStatusSnapshot")
	if diff := cmp.Diff([]any{map[string]any{"name": "app", "ready": false, "restartCount": int64(4), "containerID": "containerd://3"}},
		taken); diff != "" {
		t.Errorf("CRR-146: %s", diff)
	}
	if !slices.Equal(now.GetFinalizers(), []string{"example.com/held"}) || now.GetLabels()["crr.apps.kruise.io/active"] != "true" {
		t.Errorf("got finalizers %v, labels %v; want it held and marked", now.GetFinalizers(), now.GetLabels())
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+acquired+`":"2026-01-03T10:00:00Z"}}}`))
	if err := kube.Patch(t.Context(), view("v1alpha1"), patch); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), acquired) {
		t.Errorf("CRR-047: got %v, want it forbidden with the annotation", err)
	}
	merge("v1beta1", `{"metadata":{"finalizers":null}}`, false)
}

// warned gathers warnings.
type warned struct{ texts []string }

func (w *warned) HandleWarningHeader(_ int, _ string, text string) { w.texts = append(w.texts, text) }

// TestSecondRequestIsWarned: the second request for a pod is accepted, with a warning that another one comes
// first (CRR-164).
func TestSecondRequestIsWarned(t *testing.T) {
	recreatable(t)
	first := operation("v1beta1", "ContainerRecreateRequest", "first", "")
	if err := kube.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kube.Delete(context.Background(), first) }()
	warnings := &warned{}
	config := rest.CopyConfig(apiServer)
	config.WarningHandler = warnings
	c, err := story.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	const want = "another ContainerRecreateRequest for Pod recreated is not finished: this one waits for it (kubectl get crr -n default -l crr.apps.kruise.io/active=true)"
	if err := wait(func() error { // until the manager's cache has the first
		if err := c.Create(t.Context(), operation("v1alpha1", "ContainerRecreateRequest", "second", ""), client.DryRunAll); err != nil {
			return err
		}
		if !slices.Contains(warnings.texts, want) {
			return fmt.Errorf("warnings %q", warnings.texts)
		}
		return nil
	}); err != nil {
		t.Errorf("warnings of another request: %v", err)
	}
}
