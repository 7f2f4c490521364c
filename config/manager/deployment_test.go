// Package manager_test holds the shipped Deployment to what the specification demands.
package manager_test

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(err)
	}
}

// OPS-002, OPS-003: no root, no capability, no escalation; a read-only root with two writable paths, both
// empty folders.
func TestContainerIsConfined(t *testing.T) {
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	pod := deployment.Spec.Template.Spec
	if c := pod.SecurityContext; !*c.RunAsNonRoot || *c.RunAsUser != 65534 || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", c)
	}
	if len(pod.Containers) != 1 || pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Errorf("%+v", pod)
	}
	if r := pod.Containers[0].Resources; pod.PriorityClassName != "system-cluster-critical" || r.Requests.Memory().Value() != 256<<20 {
		t.Errorf("%s %+v", pod.PriorityClassName, r)
	}
	// Requests about large objects may take three times 128 MiB together, beside the caches (OPS-066): the
	// collector must know the limit.
	if env := pod.Containers[0].Env; pod.Containers[0].Resources.Limits.Memory().Value() != 1<<30 ||
		!slices.Contains(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "900MiB"}) {
		t.Errorf("limits %v, environment %v", pod.Containers[0].Resources.Limits, env)
	}
	c := pod.Containers[0].SecurityContext
	if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
		t.Errorf("%+v", c)
	}
	writable := map[string]bool{}
	for i, mount := range pod.Containers[0].VolumeMounts {
		writable[mount.MountPath] = pod.Volumes[i].Name == mount.Name && pod.Volumes[i].EmptyDir != nil
	}
	if diff := cmp.Diff(map[string]bool{"/tmp/kruise-webhook-certs": true, "/log": true}, writable); diff != "" {
		t.Error(diff)
	}
}

// OPS-090, OPS-101, and that a replica that is not ready never takes the place of one that is (OPS-112).
func TestRollingUpdateNeedsReadiness(t *testing.T) {
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	rolling := deployment.Spec.Strategy.RollingUpdate
	if rolling.MaxUnavailable.String() != "0" || rolling.MaxSurge.String() != "100%" || deployment.Spec.MinReadySeconds != 3 || *deployment.Spec.Template.Spec.TerminationGracePeriodSeconds != 45 {
		t.Errorf("%+v", rolling)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if container.ReadinessProbe.HTTPGet.Path != "/readyz" || container.LivenessProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("%+v", container)
	}
	// OPS-093: no profiles are served, as the flag's default has it.
	if text := strings.Join(container.Args, " "); strings.Contains(text, "pprof") {
		t.Errorf("args: %s", text)
	}
}

// OPS-010, OPS-011: the namespace has the label by which webhooks for pods skip it.
func TestWebhooksSkipTheInstallNamespace(t *testing.T) {
	var namespace corev1.Namespace
	read(t, "namespace.yaml", &namespace)
	if namespace.Name != "kruise-system" || namespace.Labels["control-plane"] != "openkruise" {
		t.Errorf("%+v", namespace)
	}
}

// The NetworkPolicy that is offered selects the manager, and names its ports; only the webhooks' is limited
// to some addresses. What stands in place of these is refused by API servers: an example range would be
// accepted, and close the port for everybody.
func TestTheNetworkPolicySelectsTheManagerAndItsPorts(t *testing.T) {
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	var policy networkingv1.NetworkPolicy
	read(t, "../network-policy/policy.yaml", &policy)
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) || policy.Namespace != deployment.Namespace {
		t.Errorf("%+v %v", policy.Spec.PodSelector, err)
	}
	limited := map[string]bool{}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			limited[port.Port.StrVal] = len(rule.From) > 0
		}
		for _, from := range rule.From {
			if _, _, err := net.ParseCIDR(from.IPBlock.CIDR); err == nil {
				t.Errorf("%s is somebody's address", from.IPBlock.CIDR)
			}
		}
	}
	want := map[string]bool{}
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		want[port.Name] = port.Name == "webhook"
	}
	if diff := cmp.Diff(want, limited); diff != "" {
		t.Error(diff)
	}
}

// The policy is a component, which a kustomization with the manifests fills in as the manual says.
func TestNetworkPolicyIsAComponent(t *testing.T) {
	files := filesys.MakeFsInMemory()
	for name, file := range map[string]string{"/policy/policy.yaml": "../network-policy/policy.yaml", "/policy/kustomization.yaml": "../network-policy/kustomization.yaml",
		"/manager/deployment.yaml": "deployment.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := files.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	manual, err := os.ReadFile("../../docs/operate/webhook-callers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manual), "```yaml file=kustomization.yaml\n")
	text, _, _ = strings.Cut(text, "```")
	text = strings.NewReplacer("../config/default", "../manager/deployment.yaml", "../config/network-policy", "../policy").Replace(text)
	if err := files.WriteFile("/mine/kustomization.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone // the manager is a file of another folder here
	rendered, err := krusty.MakeKustomizer(options).Run(files, "/mine")
	if err != nil {
		t.Fatal(err)
	}
	found, err := rendered.AsYaml()
	if err != nil || !strings.Contains(string(found), "kind: Deployment") || !strings.Contains(string(found), "cidr: 10.0.0.0/28") ||
		strings.Contains(string(found), "ADDRESSES") {
		t.Errorf("%s %v", found, err)
	}
}
