package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func into(t *testing.T, object map[string]any, typed any) {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err == nil {
		err = yaml.UnmarshalStrict(text, typed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// OPS-116 (part): the job is that of the release, with an account and rights of its own that are there before
// it, and tries once. What went wrong can be read. OPS-119: it runs where the manager may, also on tainted
// nodes, and passes Pod Security level restricted.
func TestTheUninstallJobIsThatOfTheRelease(t *testing.T) {
	hooks := mustRender(t, few(load(t)), "manager: {tolerations: [{operator: Exists}], nodeSelector: {pool: system}}")
	for key, weight := range map[string]string{"ServiceAccount kruise-system kruise-helm-hook": "1", "ClusterRole kruise-helm-hook": "2",
		"ClusterRoleBinding kruise-helm-hook": "3", "Job kruise-system kruise-finalizer": "4"} {
		// What gives rights does not outlive a guard that refused, which is what a guard does.
		policy := "before-hook-creation,hook-succeeded"
		if weight != "4" {
			policy += ",hook-failed"
		}
		annotations := hooks[key]["metadata"].(map[string]any)["annotations"].(map[string]any)
		if annotations["helm.sh/hook"] != "pre-delete" || annotations["helm.sh/hook-weight"] != weight ||
			annotations["helm.sh/hook-delete-policy"] != policy {
			t.Errorf("%s: %v", key, annotations)
		}
	}
	var job batchv1.Job
	into(t, hooks["Job kruise-system kruise-finalizer"], &job)
	pod := job.Spec.Template.Spec
	if *job.Spec.BackoffLimit != 0 || pod.RestartPolicy != corev1.RestartPolicyNever || pod.ServiceAccountName != "kruise-helm-hook" {
		t.Errorf("%+v", job.Spec)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0].Operator != corev1.TolerationOpExists || pod.NodeSelector["pool"] != "system" {
		t.Errorf("%+v %+v", pod.Tolerations, pod.NodeSelector)
	}
	c := pod.Containers[0]
	if !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		len(pod.Volumes) > 0 || pod.HostNetwork || pod.HostPID {
		t.Errorf("%+v %+v", pod.SecurityContext, c.SecurityContext)
	}
	if got := strings.Join(append(c.Command, c.Args...), " "); got != "/manager uninstall-guard --refuse=true" {
		t.Error(got)
	}
}

// OPS-074: without the chart's definitions the manager may still publish its authority in those that there
// are; with certificates of somebody else it only looks.
func TestDefinitionsOfTheUser(t *testing.T) {
	c := few(load(t))
	rules := func(values string) string {
		return text(mustRender(t, c, values)["ClusterRole kruise-certs-role"]["rules"])
	}
	if before, after := rules(""), rules("crds: {managed: false}"); before != after || !strings.Contains(after, "patch") {
		t.Error(after)
	}
	if external := rules("crds: {managed: false}\nfeatureGates: EnableExternalCerts=true"); strings.Contains(external, "patch") || external == "null" {
		t.Error(external)
	}
}

// OPS-094 (part): what the folder monitoring has is installed if it is asked for, with the labels that are
// asked for.
func TestMonitoringIsInstalledIfAskedFor(t *testing.T) {
	c := few(load(t))
	c.Files = slices.DeleteFunc(c.Files, func(file *common.File) bool { return strings.HasPrefix(file.Name, "files/monitoring/") })
	for name, kind := range map[string]string{"service": "Service", "servicemonitor": "ServiceMonitor", "rules": "PrometheusRule", "dashboards": "ConfigMap"} {
		c.Files = append(c.Files, &common.File{Name: "files/monitoring/" + name + ".yaml", Data: []byte(`{items: [
{kind: ` + kind + `, metadata: {name: kruise-` + name + `, namespace: kruise-system, labels: {own: x}}, spec: {endpoints: [{interval: 30s}]}},
{kind: ` + kind + `, metadata: {name: kruise-daemon-` + name + `, namespace: kruise-system}}]}`)})
	}
	before := mustRender(t, c, "")
	got := difference(before, mustRender(t, c, `monitoring: {service: {enabled: true}, serviceMonitor: {enabled: true}, rules: {enabled: true}, dashboards: {enabled: true}}`))
	want := []string{"+ ConfigMap kruise-system kruise-daemon-dashboards", "+ ConfigMap kruise-system kruise-dashboards", "+ PrometheusRule kruise-system kruise-daemon-rules",
		"+ PrometheusRule kruise-system kruise-rules", "+ Service kruise-system kruise-daemon-service", "+ Service kruise-system kruise-service",
		"+ ServiceMonitor kruise-system kruise-daemon-servicemonitor", "+ ServiceMonitor kruise-system kruise-servicemonitor"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	monitor := mustRender(t, c, "featureGates: KruiseDaemon=false\nmonitoring: {serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 5s}}")
	if got := text(monitor["ServiceMonitor kruise-system kruise-servicemonitor"]); !strings.Contains(got, "labels:{own:x,release:prometheus}") ||
		!strings.Contains(got, "endpoints:[{interval:5s}]") || monitor["ServiceMonitor kruise-system kruise-daemon-servicemonitor"] != nil {
		t.Error(got)
	}
	all := mustRender(t, few(load(t)), `monitoring: {service: {enabled: true}, serviceMonitor: {enabled: true}, rules: {enabled: true}, dashboards: {enabled: true}}`)
	if got := difference(before, all); len(got) < 4 || slices.ContainsFunc(got, func(line string) bool { return line[0] != '+' }) {
		t.Errorf("%v", got)
	}
}

// ND-012 (part): where the sockets of runtimes are named, their folders are all that the node daemon sees of
// the node, and it tries these sockets alone.
func TestFoldersOfNamedSockets(t *testing.T) {
	c := few(load(t))
	for values, want := range map[string][3]string{
		"[/run/containerd/containerd.sock]": {"/run/containerd", "/hostvarrun/run/containerd", "--socket-file=run/containerd/containerd.sock"},
		"[/run/k3s/containerd/containerd.sock, /var/run/crio/crio.sock]": {"/run/k3s/containerd /var/run/crio",
			"/hostvarrun/run/k3s/containerd /hostvarrun/var/run/crio", "--socket-file=run/k3s/containerd/containerd.sock,var/run/crio/crio.sock"},
		"[/var/snap/microk8s/common/run/containerd.sock, /var/snap/microk8s/common/run/other.sock]": {"/var/snap/microk8s/common/run",
			"/hostvarrun/var/snap/microk8s/common/run", "--socket-file=var/snap/microk8s/common/run/containerd.sock,var/snap/microk8s/common/run/other.sock"},
	} {
		var set appsv1.DaemonSet
		into(t, mustRender(t, c, "daemon: {sockets: "+values+"}")["DaemonSet kruise-system kruise-daemon"], &set)
		pod := set.Spec.Template.Spec
		var folders, mounts []string
		for i, volume := range pod.Volumes {
			mount := pod.Containers[0].VolumeMounts[i]
			if mount.Name != volume.Name || !mount.ReadOnly || *mount.MountPropagation != corev1.MountPropagationHostToContainer {
				t.Errorf("%s: %+v", values, mount)
			}
			folders, mounts = append(folders, volume.HostPath.Path), append(mounts, mount.MountPath)
		}
		got := [3]string{strings.Join(folders, " "), strings.Join(mounts, " "), pod.Containers[0].Args[len(pod.Containers[0].Args)-1]}
		if got != want {
			t.Errorf("%s:\n%q, want\n%q", values, got, want)
		}
	}
}

// ND-068 (part): the value and the overlay take away the same rule, and no other.
func TestTokensWithoutNode(t *testing.T) {
	c := few(load(t))
	key := "ValidatingAdmissionPolicy kruise-daemon-isolation"
	before, after := mustRender(t, c, "")[key], mustRender(t, c, "daemon: {tokensWithoutNode: true}")[key]
	if diff := cmp.Diff(manifests(t, "../../config/tokens-without-node", unchanged)[key], after); diff != "" {
		t.Error(diff)
	}
	rules := func(policy map[string]any) []any { return policy["spec"].(map[string]any)["validations"].([]any) }
	if diff := cmp.Diff(rules(before)[1:], rules(after)); diff != "" {
		t.Error(diff)
	}
}
