package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
)

// images are what pods are moved to, one after the other.
var images = []string{"nginx:1.26", "nginx:1.27", "nginx:1.28"}

// podSpec is the spec of the pods whose speed is measured: a small one, since what the API server does for a
// pod grows with it.
func podSpec(image string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"),
			"memory": resource.MustParse("32Mi")}},
	}}}
}

// usualPodSpec is the spec of pods whose memory is measured: of the size that pods usually have.
func usualPodSpec(image string) corev1.PodSpec {
	spec := podSpec(image)
	c := &spec.Containers[0]
	c.Command = []string{"/bin/app", "--listen=:8080", "--log-level=info"}
	c.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz",
		Port: intstr.FromString("http")}}, PeriodSeconds: 10}
	c.LivenessProbe = c.ReadinessProbe
	c.Env = []corev1.EnvVar{{Name: "REGION", Value: "north"}, {Name: "STAGE", Value: "production"}, {Name: "CACHE_SIZE", Value: "1024"},
		{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}}
	spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	return spec
}

// kind is a kind of workload whose speed is measured.
type kind struct {
	name, plural string
	// promised is the part of the bare client's speed that an update must reach, in percent.
	promised float64
	// spec has the fields of a spec that only this kind has; unavailable is the update's maxUnavailable.
	spec func(version, unavailable string) map[string]any
}

var cloneSets = kind{"CloneSet", "clonesets", 95, func(version, unavailable string) map[string]any {
	strategy := map[string]any{"type": "RollingUpdate",
		"rollingUpdate": map[string]any{"podUpdatePolicy": "InPlaceOnly", "maxUnavailable": unavailable}}
	if version == "v1alpha1" {
		strategy = map[string]any{"type": "InPlaceOnly", "maxUnavailable": unavailable}
	}
	return map[string]any{"updateStrategy": strategy}
}}

// sets speaks with the API server about workloads of a kind, in the version that is stored, so that no
// conversion disturbs the measurement.
type sets struct {
	client  dynamic.Interface
	kind    kind
	version string
	// namespace is where the workloads are.
	namespace string
	// spec makes the spec of the pods.
	spec func(image string) corev1.PodSpec
	// annotations are those of the pods.
	annotations map[string]string
	// complete, if not nil, completes a workload as the webhooks would.
	complete func(set map[string]any) ([]byte, error)
}

func findSets(ctx context.Context, client dynamic.Interface, kind kind) (*sets, error) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := client.Resource(crds).Get(ctx, kind.plural+".apps.kruise.io", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the installation must define %s: %w", kind.plural, err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return nil, err
	}
	for _, entry := range versions {
		if version, ok := entry.(map[string]any); ok && version["storage"] == true {
			return &sets{client: client, kind: kind, version: version["name"].(string), namespace: ours, spec: podSpec}, nil
		}
	}
	return nil, fmt.Errorf("no version of %s is stored", kind.name)
}

// in returns the same for another namespace.
func (s *sets) in(namespace string) *sets {
	there := *s
	there.namespace = namespace
	return &there
}

func (s *sets) resource() dynamic.ResourceInterface {
	return s.client.Resource(schema.GroupVersionResource{Group: "apps.kruise.io", Version: s.version, Resource: s.kind.plural}).
		Namespace(s.namespace)
}

// object makes a workload that is updated in place.
func (s *sets) object(name string, replicas int, unavailable string) (*unstructured.Unstructured, error) {
	spec := s.kind.spec(s.version, unavailable)
	spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": name}}
	if s.kind.name != daemonSets.name { // the nodes say how many pods these have
		spec["replicas"] = replicas
	}
	spec["template"] = map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": name}, "annotations": s.annotations},
		"spec": s.spec(images[0])}
	set := map[string]any{"apiVersion": "apps.kruise.io/" + s.version, "kind": s.kind.name,
		"metadata": map[string]any{"name": name, "namespace": s.namespace}, "spec": spec}
	complete := s.complete
	if complete == nil {
		complete = func(set map[string]any) ([]byte, error) { return json.Marshal(set) }
	}
	b, err := complete(set)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, json.Unmarshal(b, &object.Object)
}

func (s *sets) create(ctx context.Context, name string, replicas int, unavailable string, options ...string) error {
	object, err := s.object(name, replicas, unavailable)
	if err != nil {
		return err
	}
	_, err = s.resource().Create(ctx, object, metav1.CreateOptions{DryRun: options})
	return err
}

// admitted tries by a dry run whether a workload would be accepted.
func (s *sets) admitted(ctx context.Context) error {
	return s.create(ctx, "admitted", 1, "100%", metav1.DryRunAll)
}

func (s *sets) image(ctx context.Context, name, image string) error {
	body := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	_, err := s.resource().Patch(ctx, name, types.JSONPatchType, []byte(body), metav1.PatchOptions{})
	return err
}

// scale uses the subresource, which needs no manager.
func (s *sets) scale(ctx context.Context, name string, replicas int) error {
	_, err := s.resource().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas),
		metav1.PatchOptions{}, "scale")
	return err
}

// settled waits until the status shows that the spec is carried out.
func (s *sets) settled(ctx context.Context, name string, replicas int) error {
	status := ""
	err := poll(ctx, "status of "+name, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		set, err := s.resource().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		of := func(field string) int64 {
			n, _, _ := unstructured.NestedInt64(set.Object, "status", field)
			return n
		}
		status = fmt.Sprint(set.Object["status"])
		n := int64(replicas)
		if s.kind.name == daemonSets.name {
			return of("observedGeneration") == set.GetGeneration() && of("desiredNumberScheduled") == n && of("numberAvailable") == n &&
				of("updatedNumberScheduled") == n, nil
		}
		return of("observedGeneration") == set.GetGeneration() && of("replicas") == n && of("availableReplicas") == n &&
			of("updatedReplicas") == n, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, status)
	}
	return nil
}
