// Package daemon_test holds the shipped DaemonSet and its rights to what the specification demands.
package daemon_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

// ND-001, ND-010, ND-011, ND-016, ND-197, OPS-102, OPS-091 (part): names, network, tolerations, update and
// probes are the reference's.
func TestTheDaemonSetIsThatOfTheReference(t *testing.T) {
	var set appsv1.DaemonSet
	read(t, "daemonset.yaml", &set)
	pod := set.Spec.Template.Spec
	if set.Name != "kruise-daemon" || set.Namespace != "kruise-system" || set.Spec.Template.Labels["control-plane"] != "daemon" || pod.ServiceAccountName != "kruise-daemon" {
		t.Errorf("%s/%s %v", set.Namespace, set.Name, set.Spec.Template.Labels)
	}
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet || pod.HostPID || pod.HostIPC || *pod.TerminationGracePeriodSeconds != 10 {
		t.Errorf("%+v", pod)
	}
	if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
		t.Error(diff)
	}
	if set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String() != "10%" || set.Spec.MinReadySeconds != 3 {
		t.Errorf("%+v", set.Spec.UpdateStrategy)
	}
	term := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions
	if diff := cmp.Diff([]corev1.NodeSelectorRequirement{{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}}}, term); diff != "" {
		t.Error(diff)
	}
	live := pod.Containers[0].LivenessProbe
	if live.HTTPGet.Path != "/healthz" || live.InitialDelaySeconds != 60 || live.PeriodSeconds != 10 || live.FailureThreshold != 3 || pod.Containers[0].ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("%+v", live)
	}
	if len(pod.Containers[0].Env) != 2 || pod.Containers[0].Env[1] != (corev1.EnvVar{Name: "GOMEMLIMIT", Value: "112MiB"}) || pod.Containers[0].Env[0].Name != "NODE_NAME" || pod.Containers[0].Env[0].ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("%+v", pod.Containers[0].Env)
	}
	if r := pod.Containers[0].Resources; pod.PriorityClassName != "system-node-critical" || r.Requests.Memory().Value() != 64<<20 || r.Limits.Memory().Value() != 128<<20 {
		t.Errorf("%s %+v", pod.PriorityClassName, r)
	}
	if text := strings.Join(pod.Containers[0].Args, " "); strings.Contains(text, "pprof") {
		t.Errorf("args: %s", text) // ND-020: off
	}
}

// ND-012, ND-017, OPS-102 (part): the host is seen through one folder, read-only; no capability but one,
// nothing is writable.
func TestContainerIsConfined(t *testing.T) {
	var set appsv1.DaemonSet
	read(t, "daemonset.yaml", &set)
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	if len(pod.Containers) != 1 || len(pod.Volumes) != 1 || pod.Volumes[0].HostPath.Path != "/var/run" || len(c.VolumeMounts) != 1 ||
		c.VolumeMounts[0].MountPath != "/hostvarrun" || !c.VolumeMounts[0].ReadOnly {
		t.Errorf("%+v %+v", pod.Volumes, c.VolumeMounts)
	}
	s := c.SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Privileged != nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		len(s.Capabilities.Add) > 0 || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", s)
	}
}

// ND-065, ND-066, CRR-156, ND-191, OPS-083: the roles allow exactly this; secrets may be read in one
// namespace only, and no spec may be written.
func TestRights(t *testing.T) {
	data, err := os.ReadFile("../rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var r struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Rules    []rbacv1.PolicyRule
		}
		if err := yaml.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.Metadata.Name, "kruise-daemon-") {
			continue
		}
		name := strings.TrimSuffix(r.Kind+" "+r.Metadata.Namespace, " ")
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				got[name] = append(got[name], resource+": "+strings.Join(rule.Verbs, " "))
			}
		}
		slices.Sort(got[name])
	}
	want := map[string][]string{
		"ClusterRole": {
			"containerrecreaterequests/status: patch", "containerrecreaterequests: get list watch",
			"events: create patch",
			"nodeimages/status: patch", "nodeimages: get list watch", "nodepodprobes/status: patch", "nodepodprobes: get list watch",
			"pods/status: patch", "pods: get list watch",
		},
		"Role kruise-daemon-config": {"secrets: get"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// ND-010: both roles are bound to the daemon alone, in their own scope.
func TestRolesAreBoundToTheDaemonAlone(t *testing.T) {
	data, err := os.ReadFile("bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]string{}
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var b rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
		if err := yaml.UnmarshalStrict(text, &b); err != nil {
			t.Fatal(err)
		}
		if len(b.Subjects) != 1 || b.Subjects[0].Name != "kruise-daemon" || b.Subjects[0].Namespace != "kruise-system" || b.Kind != b.RoleRef.Kind+"Binding" {
			t.Errorf("%+v", b)
		}
		bound[b.RoleRef.Name] = b.Namespace
	}
	if diff := cmp.Diff(map[string]string{"kruise-daemon-role": "", "kruise-daemon-secret-role": "kruise-daemon-config"}, bound); diff != "" {
		t.Error(diff)
	}
}
