package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

const namespace = "kruise-system"

// world is a cluster in memory, with the reference's installation in it and stand-ins for what runs
// workloads.
type world struct {
	t  *testing.T
	mu sync.Mutex // of writes
	client.WithWatch
	bare client.WithWatch
	// deadly is the number of the write at which the command dies; before tells whether the write is made
	// nevertheless.
	deadly   int
	after    bool
	writes   int
	written  []string
	pulls    string // why images cannot be pulled
	keeps    bool   // the lock is not given back
	violated []string
	// renews: somebody renews the lock all the time.
	renews bool
	// folder is where the backup has to be before anything is written.
	folder string
	// manifests are those that are applied; empty means those of the release.
	manifests string
	// stuck: a new manager does not become ready. whenStuck is told.
	stuck bool
	// idle: the new manager serves and does not act.
	idle      bool
	whenStuck func()
}

var errDied = errors.New("the command died")

// theirs is an installation of the reference, as its chart makes it.
const theirs = `
apiVersion: v1
kind: Namespace
metadata: {name: kruise-system, labels: {control-plane: openkruise, team: platform}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kruise-manager, namespace: kruise-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kruise-manager-role}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kruise-manager-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kruise-manager-role}
subjects: [{kind: ServiceAccount, name: kruise-manager, namespace: kruise-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kruise-extra-role}
rules: [{apiGroups: [""], resources: [secrets], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kruise-extra-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kruise-extra-role}
subjects: [{kind: ServiceAccount, name: kruise-manager, namespace: kruise-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop-games-for-kruise}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shop-games}
subjects: [{kind: ServiceAccount, name: kruise-manager, namespace: kruise-system}]
---
apiVersion: v1
kind: Secret
metadata: {name: kruise-webhook-certs, namespace: kruise-system}
data: {ca-cert.pem: c2VjcmV0LXN0dWZm, key.pem: c2VjcmV0LXN0dWZm}
---
apiVersion: v1
kind: Service
metadata: {name: kruise-webhook-service, namespace: kruise-system}
spec: {clusterIP: 10.0.0.7, ports: [{port: 443, targetPort: 9876}], selector: {control-plane: controller-manager}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kruise-controller-manager
  namespace: kruise-system
  labels: {control-plane: controller-manager}
  annotations: {meta.helm.sh/release-name: kruise, meta.helm.sh/release-namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {control-plane: controller-manager}}
  template:
    metadata: {labels: {control-plane: controller-manager}}
    spec:
      serviceAccountName: kruise-manager
      tolerations: [{key: infra, operator: Exists}]
      containers:
      - name: manager
        image: openkruise/kruise-manager:v1.8.0
        command: [/manager]
        args: [--enable-leader-election, --metrics-addr=:8080, --health-probe-addr=:8000, --logtostderr=true, --v=4, --sync-period=0, --cloneset-workers=7,
          "--feature-gates=CloneSetShortHash=true,ResourceDistributionGate=true,NoSuchGate=true", --frobnicate=yes, --leader-election-namespace=kruise-system]
        env: [{name: KUBE_CACHE_MUTATION_DETECTOR, value: "true"}, {name: CERTS_RENEW_BEFORE, value: 90d}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kruise-daemon, namespace: kruise-system, labels: {control-plane: daemon}}
spec:
  selector: {matchLabels: {control-plane: daemon}}
  template:
    metadata: {labels: {control-plane: daemon}}
    spec:
      containers: [{name: daemon, image: "openkruise/kruise-manager:v1.8.0", command: [/kruise-daemon], args: [--max-workers-for-pull-image=9, --v=4]}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kruise-manager, namespace: kruise-system}
spec: {holderIdentity: kruise-controller-manager-a, leaseDurationSeconds: 1}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kruise-mutating-webhook-configuration, annotations: {template: "[]"}}
webhooks:
- name: mcloneset.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {caBundle: dGhlaXJz, service: {name: kruise-webhook-service, namespace: kruise-system, path: /mutate-apps-kruise-io-cloneset}}
  rules: [{apiGroups: [apps.kruise.io], apiVersions: [v1alpha1, v1beta1], operations: [CREATE, UPDATE], resources: [clonesets]}]
- name: mpod.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {caBundle: dGhlaXJz, service: {name: kruise-webhook-service, namespace: kruise-system, path: /mutate-pod}}
  namespaceSelector: {matchExpressions: [{key: control-plane, operator: NotIn, values: [openkruise]}]}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
- name: mvoyage.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {caBundle: dGhlaXJz, service: {name: kruise-webhook-service, namespace: kruise-system, path: /mutate-apps-kruise-io-v1alpha1-voyage}}
  rules: [{apiGroups: [apps.kruise.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [voyages]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clonesets.apps.kruise.io}
spec:
  group: apps.kruise.io
  names: {kind: CloneSet, plural: clonesets}
  scope: Namespaced
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {caBundle: dGhlaXJz, service: {name: kruise-webhook-service, namespace: kruise-system, path: /convert}}}}
  versions:
  - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
status: {storedVersions: [v1beta1]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: voyages.apps.kruise.io}
spec:
  group: apps.kruise.io
  names: {kind: Voyage, plural: voyages}
  scope: Namespaced
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
status: {storedVersions: [v1beta1]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gamemarkers.apps.kruise.io}
spec:
  group: apps.kruise.io
  names: {kind: GameMarker, plural: gamemarkers}
  scope: Namespaced
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {caBundle: dGhlaXJz, service: {name: kruise-webhook-service, namespace: kruise-system, path: /convert}}}}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
status: {storedVersions: [v1beta1]}
---
apiVersion: v1
kind: Pod
metadata: {name: kruise-controller-manager-a, namespace: kruise-system, labels: {control-plane: controller-manager}}
spec: {containers: [{name: manager, image: "openkruise/kruise-manager:v1.8.0"}]}
---
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: web, namespace: shop, uid: u1}
spec: {replicas: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: web-x, namespace: shop, uid: p1, ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: u1, controller: true}]}
spec: {containers: [{name: app, image: "app:1"}]}
status: {containerStatuses: [{name: app, restartCount: 3}]}
`

// worldScheme and converters are made once: that takes longer than all of a run.
var (
	worldScheme = runtime.NewScheme()
	converters  []managedfields.TypeConverter
	mapper      meta.RESTMapper
)

func init() {
	scheme := worldScheme
	// The fake client goes through all of the scheme's types in each apply, so it has only those that are met here.
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme),
		coordinationv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), policyv1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme), policyv1beta1.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	for _, kind := range []string{"Voyage", "GameMarker"} {
		gv := appsv1alpha1.GroupVersion
		gv.Version = "v1beta1"
		scheme.AddKnownTypeWithName(gv.WithKind(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gv.WithKind(kind+"List"), &unstructured.UnstructuredList{})
	}
	mapper = testrestmapper.TestOnlyStaticRESTMapper(scheme)
	converters = []managedfields.TypeConverter{applyconfigurations.NewTypeConverter(clientgoscheme.Scheme),
		managedfields.NewDeducedTypeConverter()}
}

func newWorld(t *testing.T, more string) *world {
	t.Helper()
	w := &world{t: t}
	w.bare = fake.NewClientBuilder().WithScheme(worldScheme).WithRESTMapper(mapper).WithReturnManagedFields().WithTypeConverters(converters...).
		WithIndex(&appsv1.Deployment{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	objects, err := installation.Parse([]byte(theirs + more))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := w.bare.Create(t.Context(), object, client.FieldOwner("helm")); err != nil {
			t.Fatalf("creating %v: %v", installation.Of(object), err)
		}
	}
	renewals := 0
	w.WithWatch = interceptor.NewClient(w.bare, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if w.renews && o.GetObjectKind().GroupVersionKind().Kind == "Lease" {
				renewals++
				body := fmt.Sprintf(`{"spec":{"renewTime":"2026-01-02T15:04:05.%06dZ"}}`, renewals)
				if err := c.Patch(ctx, w.lease(), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if (&client.CreateOptions{}).ApplyOptions(options).DryRun != nil {
				return nil // webhooks answer
			}
			return w.write(o, "create", func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if (&client.UpdateOptions{}).ApplyOptions(options).DryRun != nil {
				return c.Update(ctx, o, options...)
			}
			return w.write(o, "update", func() error { return c.Update(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return w.write(o, "delete", func() error { return c.Delete(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return w.write(o, "patch", func() error { return c.Patch(ctx, o, p, options...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if (&client.ApplyOptions{}).ApplyOptions(options).DryRun != nil {
				return nil
			}
			of := o.(interface {
				GetKind() string
				GetName() string
			})
			object := &unstructured.Unstructured{}
			object.SetKind(of.GetKind())
			object.SetName(of.GetName())
			return w.write(object, "apply", func() error { return c.Apply(ctx, o, options...) })
		},
	})
	return w
}

// write counts a write, makes it unless the command dies before it, and lets the stand-ins act.
func (w *world) write(o client.Object, verb string, do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	dies := w.writes == w.deadly
	if dies && !w.after {
		return errDied
	}
	if _, err := os.Stat(filepath.Join(w.folder, index)); w.folder != "" && err != nil && o.GetName() != turnName {
		w.violated = append(w.violated, "written before the backup was complete: "+installation.Of(o))
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	w.written = append(w.written, strings.TrimSpace(verb+" "+kind+" "+o.GetName()))
	if kind == "Pod" && o.GetName() != checkPod || kind == "CloneSet" && o.GetName() != probeName {
		w.violated = append(w.violated, verb+" of "+installation.Of(o))
	}
	if err := do(); err != nil {
		return err
	}
	w.standIns()
	for _, space := range []string{"shop", namespace} {
		if names := w.refusing(space, false); len(names) > 0 {
			w.violated = append(w.violated, fmt.Sprintf("after %s: in namespace %s pods are refused by %v", w.written[len(w.written)-1], space, names))
		}
	}
	if dies {
		return errDied
	}
	return nil
}

// standIns are kubelets and the controller of Deployments: what is wanted comes true at once.
func (w *world) standIns() {
	ctx := context.Background()
	var deployment appsv1.Deployment
	if err := w.bare.Get(ctx, client.ObjectKey{Namespace: namespace, Name: installation.Manager}, &deployment); err != nil {
		w.violated = append(w.violated, err.Error())
		return
	}
	var pods corev1.PodList
	if err := w.bare.List(ctx, &pods, client.InNamespace(namespace),
		client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
		w.violated = append(w.violated, err.Error())
	}
	image := deployment.Spec.Template.Spec.Containers[0].Image
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case *deployment.Spec.Replicas == 0:
			_ = w.bare.Delete(ctx, pod)
			if !w.keeps {
				_ = w.bare.Patch(ctx, w.lease(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`)))
			}
		case pod.Spec.Containers[0].Image != image:
			w.violated = append(w.violated, fmt.Sprintf("%s is to run while %s does", image, pod.Spec.Containers[0].Image))
		}
	}
	if n := *deployment.Spec.Replicas; n > 0 && len(pods.Items) == 0 && w.stuck {
		deployment.Status = appsv1.DeploymentStatus{}
		_ = w.bare.Status().Update(ctx, &deployment)
		if w.whenStuck != nil {
			w.whenStuck()
		}
	} else if n > 0 && len(pods.Items) == 0 {
		if names := w.refusing(namespace, true); len(names) > 0 { // admission asks webhooks about this pod, too
			w.violated = append(w.violated, fmt.Sprintf("a pod of %s is refused by %v", image, names))
			return
		}
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.Labels = namespace, fmt.Sprintf("%s-%d", installation.Manager, w.writes),
			map[string]string{"control-plane": "controller-manager"}
		pod.Spec.Containers = []corev1.Container{{Name: "manager", Image: image}}
		_ = w.bare.Create(ctx, pod)
		_ = w.bare.Patch(ctx, w.lease(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"`+pod.Name+`"}}`)))
		if deployment.Status.ReadyReplicas != n {
			deployment.Status = appsv1.DeploymentStatus{Replicas: n, ReadyReplicas: n, UpdatedReplicas: n}
			_ = w.bare.Status().Update(ctx, &deployment)
		}
	}
	var probe appsv1beta1.CloneSet
	if !w.idle && w.bare.Get(ctx, client.ObjectKey{Namespace: namespace, Name: probeName}, &probe) == nil && probe.Status.ObservedGeneration == 0 {
		probe.Status.ObservedGeneration = 1
		_ = w.bare.Update(ctx, &probe)
	}
	var check corev1.Pod
	if w.bare.Get(ctx, client.ObjectKey{Namespace: namespace, Name: checkPod}, &check) == nil && check.Status.ContainerStatuses == nil {
		state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
		if w.pulls != "" {
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: w.pulls}}
		}
		check.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", Image: "ours/manager:1", State: state}}
		_ = w.bare.Status().Update(ctx, &check)
	}
}

func (w *world) lease() *unstructured.Unstructured {
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(installation.Leases)
	lease.SetNamespace(namespace)
	lease.SetName(installation.Lock)
	return lease
}

// command is a run of the command in this world.
func (w *world) command(folder string, out io.Writer) *takeover {
	return &takeover{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard},
		choice: installation.Choice{Image: "ours/manager:1", DaemonImage: "ours/daemon:1", Path: w.manifests}, backup: folder,
		dryRun: wet, fieldManager: owner, yes: true, holder: "you", turnFor: time.Millisecond, turnFresh: time.Hour, renewEvery: time.Hour,
		timeout: 5 * time.Second, client: w, cluster: "prod", now: func() time.Time { return time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC) },
		poll: time.Millisecond,
		rehearse: func(_ context.Context, kind string, name types.NamespacedName) (*explain.Explanation, error) {
			return &explain.Explanation{Kind: kind, Namespace: name.Namespace, Name: name.Name, Pods: []explain.Pod{{Name: "web-x",
				State: explain.Done}}}, nil
		}}
}

// state is all objects of the world but what differs from run to run.
func (w *world) state() string {
	w.t.Helper()
	var all strings.Builder
	for _, kind := range states {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[0])
		list.SetKind(kind[1] + "List")
		if err := w.bare.List(context.Background(), list); err != nil {
			w.t.Fatalf("listing %v: %v", kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if kind[1] == "Pod" && strings.HasPrefix(object.GetName(), installation.Manager) {
				continue
			}
			for _, field := range []string{"resourceVersion", "managedFields", "uid", "creationTimestamp"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			if object.GetName() == turnName {
				continue
			}
			unstructured.RemoveNestedField(object.Object, "spec", "holderIdentity")
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", backupAnnotation)
			if kind[1] == "Deployment" {
				delete(object.Object, "status")
			}
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				w.t.Fatal(err)
			}
			all.Write(text)
			all.WriteString("---\n")
		}
	}
	return all.String()
}

var states = [][2]string{{"v1", "Namespace"}, {"v1", "ServiceAccount"}, {"v1", "Secret"}, {"v1", "Service"}, {"v1", "Pod"},
	{"rbac.authorization.k8s.io/v1", "ClusterRole"}, {"rbac.authorization.k8s.io/v1", "ClusterRoleBinding"},
	{"rbac.authorization.k8s.io/v1", "Role"},
	{"rbac.authorization.k8s.io/v1", "RoleBinding"}, {"apps/v1", "Deployment"}, {"apps/v1", "DaemonSet"}, {"coordination.k8s.io/v1",
		"Lease"},
	{"policy/v1", "PodDisruptionBudget"}, {"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"},
	{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"}, {"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinition"}, {"apps.kruise.io/v1beta1", "CloneSet"}}
