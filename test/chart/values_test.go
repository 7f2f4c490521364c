package chart_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	deployment = "Deployment kruise-system kruise-controller-manager "
	manager    = deployment + "spec.template.spec."
	container  = manager + "containers.manager."
	daemonSet  = "DaemonSet kruise-system kruise-daemon "
	daemon     = daemonSet + "spec.template.spec."
	daemonC    = daemon + "containers.daemon."
	job        = "Job kruise-system kruise-finalizer spec.template.spec."
	gate       = "--feature-gates=ImagePullJobGate=true"
	managerEnv = "{name:POD_NAMESPACE,valueFrom:{fieldRef:{fieldPath:metadata.namespace}}},{name:GOMEMLIMIT,value:900MiB}"
	daemonEnv  = "{name:NODE_NAME,valueFrom:{fieldRef:{fieldPath:spec.nodeName}}},{name:GOMEMLIMIT,value:112MiB}"
)

func managerArgs(more string) string {
	return container + "args: [--v=3," + gate + "] -> [--v=3," + gate + "," + more + "]"
}

func daemonArgs(more string) string {
	return daemonC + "args: [--v=4," + gate + ",--addr=:10221] -> [--v=4," + gate + ",--addr=:10221," + more + "]"
}

// changesOfValues are what values change, a line for each field of an object. A line that ends with ...
// stands for all that begin so.
var changesOfValues = map[string]string{
	"manager: {replicas: 3}": deployment + "spec.replicas: 2 -> 3",
	"manager: {image: {repository: example.com/m}}": container + "image: afloat/manager:dev -> example.com/m:dev\n" +
		job + "containers.guard.image: afloat/manager:dev -> example.com/m:dev",
	"manager: {image: {tag: v1}}": container + "image: afloat/manager:dev -> afloat/manager:v1\n" +
		job + "containers.guard.image: afloat/manager:dev -> afloat/manager:v1",
	`manager: {image: {tag: "sha256:12"}}`: container + "image: afloat/manager:dev -> afloat/manager@sha256:12\n" +
		job + "containers.guard.image: afloat/manager:dev -> afloat/manager@sha256:12",
	"manager: {image: {pullPolicy: Always}}": container + "imagePullPolicy: none -> Always\n" +
		job + "containers.guard.imagePullPolicy: none -> Always",
	`manager: {log: {level: "5"}}`:   container + "args.0: --v=3 -> --v=5",
	`manager: {log: {level: 5}}`:     container + "args.0: --v=3 -> --v=5",
	"manager: {loggingFormat: json}": managerArgs("--logging-format=json"),
	"manager: {webhook: {callersConfigMap: api-server, callerNames: [kube-apiserver, other one]}}": container + "args: ...\n" +
		container + "volumeMounts: ...\n" + manager + "volumes: ...",
	"manager: {webhook: {port: 9443}}": container + "env: [" + managerEnv + "] -> [" +
		managerEnv + ",{name:WEBHOOK_PORT,value:9443}]\n" +
		container + "ports.webhook.containerPort: 9876 -> 9443\n" +
		"Service kruise-system kruise-webhook-service spec.ports.webhook.targetPort: 9876 -> 9443",
	"manager: {metrics: {port: 8081}}": managerArgs("--metrics-addr=:8081") + "\n" +
		container + "ports.metrics.containerPort: 8080 -> 8081",
	"manager: {metrics: {secure: true}}": "+ ClusterRoleBinding kruise-metrics-rolebinding\n" + managerArgs("--metrics-secure"),
	"manager: {healthProbe: {port: 8001}}": managerArgs("--health-probe-addr=:8001") + "\n" +
		container + "ports.health.containerPort: 8000 -> 8001",
	"manager: {enablePprof: true}":                           managerArgs("--enable-pprof=true,--pprof-addr=localhost:8090"),
	"manager: {enablePprof: true, pprofAddr: 'localhost:1'}": managerArgs("--enable-pprof=true,--pprof-addr=localhost:1"),
	"manager: {pprofAddr: 'localhost:1'}":                    "",
	"manager: {resyncPeriod: 10h}":                           managerArgs("--sync-period=10h"),
	"manager: {resyncPeriod: 0}":                             "",
	`manager: {resources: {limits: {cpu: "1"}}}`:             container + "resources.limits.cpu: none -> 1",
	`manager: {resources: {limits: {memory: 2Gi}}}`: container + "env.GOMEMLIMIT.value: 900MiB -> 1800MiB\n" +
		container + "resources.limits.memory: 1Gi -> 2Gi",
	`manager: {resources: {limits: {memory: 512M}}}`: container + "env.GOMEMLIMIT.value: 900MiB -> 429MiB\n" +
		container + "resources.limits.memory: 1Gi -> 512M",
	`manager: {resources: {limits: {memory: null}}}`: container + "env: [" + managerEnv + "] -> [{name:POD_NAMESPACE,valueFrom:{fieldRef:{fieldPath:metadata.namespace}}}]\n" +
		container + "resources.limits.memory: 1Gi -> none",
	"manager: {hostNetwork: true}": deployment + "spec.strategy.rollingUpdate.maxUnavailable: 0 -> 1\n" +
		manager + "hostNetwork: none -> true\n" +
		manager + "dnsPolicy: none -> ClusterFirstWithHostNet",
	"manager: {nodeAffinity: {a: 1}}": manager + "affinity.nodeAffinity: none -> {a:1}\n" + job + "affinity: none -> {nodeAffinity:{a:1}}",
	"manager: {nodeSelector: {a: b}}": manager + "nodeSelector: none -> {a:b}\n" + job + "nodeSelector: none -> {a:b}",
	"manager: {tolerations: [{key: a}]}": manager + "tolerations: none -> [{key:a}]\n" +
		job + "tolerations: none -> [{key:a}]",
	"manager: {priorityClassName: p}":                       manager + "priorityClassName: system-cluster-critical -> p",
	`manager: {priorityClassName: ""}`:                      manager + "priorityClassName: system-cluster-critical -> none",
	"manager: {podAnnotations: {a: b}}":                     deployment + "spec.template.metadata.annotations: none -> {a:b}",
	"manager: {podLabels: {a: b}}":                          deployment + "spec.template.metadata.labels.a: none -> b",
	"manager: {podLabels: {control-plane: b}}":              "", // what selectors need is not taken away
	"manager: {revisionHistoryLimit: 0}":                    deployment + "spec.revisionHistoryLimit: none -> 0",
	"manager: {extraArgs: [--cloneset-workers=3]}":          managerArgs("--cloneset-workers=3"),
	"manager: {extraEnvs: [{name: A, value: b}]}":           container + "env: [" + managerEnv + "] -> [" + managerEnv + ",{name:A,value:b}]",
	"manager: {podDisruptionBudget: {enabled: false}}":      "- PodDisruptionBudget kruise-system kruise-controller-manager",
	"manager: {podDisruptionBudget: {maxUnavailable: 50%}}": "PodDisruptionBudget kruise-system kruise-controller-manager spec.maxUnavailable: 1 -> 50%",
	"manager: {podDisruptionBudget: {minAvailable: 1}}": "PodDisruptionBudget kruise-system kruise-controller-manager spec.maxUnavailable: 1 -> none\n" +
		"PodDisruptionBudget kruise-system kruise-controller-manager spec.minAvailable: none -> 1",
	"manager: {podSpec: {hostAliases: [{ip: 10.0.0.1}]}}":   manager + "hostAliases: none -> [{ip:10.0.0.1}]",
	"manager: {podSpec: {securityContext: {runAsUser: 1}}}": manager + "securityContext.runAsUser: 65534 -> 1",
	"manager: {container: {livenessProbe: null}}":           container + "livenessProbe: {httpGet:{path:/healthz,port:health},initialDelaySeconds:15,periodSeconds:15,timeoutSeconds:5} -> none",
	"daemon: {image: {repository: example.com/d}}":          daemonC + "image: afloat/daemon:dev -> example.com/d:dev",
	"daemon: {image: {tag: v1, pullPolicy: IfNotPresent}}": daemonC + "image: afloat/daemon:dev -> afloat/daemon:v1\n" +
		daemonC + "imagePullPolicy: none -> IfNotPresent",
	`daemon: {log: {level: "5"}}`: daemonC + "args.0: --v=4 -> --v=5",
	"daemon: {port: 10000}": daemonC + "args.2: --addr=:10221 -> --addr=:10000\n" +
		daemonC + "ports.health.containerPort: 10221 -> 10000",
	"daemon: {enablePprof: true}":                           daemonArgs("--enable-pprof=true,--pprof-addr=localhost:10222"),
	"daemon: {enablePprof: true, pprofAddr: 'localhost:1'}": daemonArgs("--enable-pprof=true,--pprof-addr=localhost:1"),
	"daemon: {pprofAddr: 'localhost:1'}":                    "",
	"daemon: {socketLocation: /run/k3s}":                    daemon + "volumes.runtime-sockets.hostPath.path: /var/run -> /run/k3s",
	"daemon: {socketFile: crio.sock}":                       daemonArgs("--socket-file=crio.sock"),
	"daemon: {sockets: [/run/containerd/containerd.sock]}":  "...",
	"daemon: {tokensWithoutNode: true}":                     "...",
	"daemon: {resources: {limits: {memory: 256Mi}}}": daemonC + "env.GOMEMLIMIT.value: 112MiB -> 225MiB\n" +
		daemonC + "resources.limits.memory: 128Mi -> 256Mi",
	"daemon: {nodeSelector: {a: b}}":                daemon + "nodeSelector.a: none -> b",
	"daemon: {nodeSelector: {kubernetes.io/os: b}}": daemon + "nodeSelector.kubernetes.io/os: linux -> b",
	"daemon: {affinity: {nodeAffinity: {a: 1}}}": daemon + "affinity.nodeAffinity.a: none -> 1\n" +
		daemon + "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:[{matchExpressions:[{key:type,operator:NotIn,values:[virtual-kubelet]}]}]} -> none",
	"daemon: {tolerations: []}":       daemon + "tolerations: [{operator:Exists}] -> none",
	`daemon: {priorityClassName: ""}`: daemon + "priorityClassName: system-node-critical -> none",
	"daemon: {podAnnotations: {a: b}, podLabels: {c: d}}": daemonSet + "spec.template.metadata.annotations: none -> {a:b}\n" +
		daemonSet + "spec.template.metadata.labels.c: none -> d",
	"daemon: {revisionHistoryLimit: 2}":                     daemonSet + "spec.revisionHistoryLimit: none -> 2",
	"daemon: {extraArgs: [--max-workers-for-pull-image=1]}": daemonArgs("--max-workers-for-pull-image=1"),
	"daemon: {extraEnvs: [{name: HTTPS_PROXY, value: 'x'}]}": daemonC + "env: [" + daemonEnv + "] -> [" +
		daemonEnv + ",{name:HTTPS_PROXY,value:x}]",
	"daemon: {podSpec: {hostNetwork: false}}":       daemon + "hostNetwork: true -> false",
	"daemon: {container: {imagePullPolicy: Never}}": daemonC + "imagePullPolicy: none -> Never",
	"daemon: {credentialProvider: {enable: true, hostPath: /p, configmap: c, awsCredentialsDir: /aws}}": daemonC + "env: [" + daemonEnv + "] -> [" +
		daemonEnv + ",{name:HOME,value:/root}]\n" +
		daemonC + "volumeMounts: ...\n" + daemon + "volumes: ...",
	"daemon: {credentialProvider: {configmap: c, awsCredentialsDir: /aws}}": "",
	"daemon: {windowsImage: {tag: x}}":                                      "",
	"enableKubeCacheMutationDetector: true": container + "env: [" + managerEnv + "] -> [" + managerEnv +
		",{name:KUBE_CACHE_MUTATION_DETECTOR,value:true}]",
	"imagePullSecrets: [{name: s}]": manager + "imagePullSecrets: none -> [{name:s}]\n" + daemon + "imagePullSecrets: none -> [{name:s}]\n" +
		job + "imagePullSecrets: none -> [{name:s}]",
	"serviceAccount: {annotations: {a: b}}": "ServiceAccount kruise-system kruise-manager metadata.annotations: none -> {a:b}\n" +
		"ServiceAccount kruise-system kruise-daemon metadata.annotations: none -> {a:b}",
	"installation: {createNamespace: false}":   "- Namespace kruise-system",
	"installation: {keepNamespace: false}":     "Namespace kruise-system metadata.annotations: {helm.sh/resource-policy:keep} -> none",
	"installation: {roleListGroups: [a]}":      "",
	"installation: {namespace: x}":             "...",
	"installation: {daemonConfigNamespace: x}": "...",
	"crds: {managed: false}":                   "- CustomResourceDefinition ...",
	"crds: {keep: false}":                      "CustomResourceDefinition ...",
	`featureGates: "ImagePullJobGate=true,PodProbeMarkerGate=true"`: container + "args.1: " + gate + " -> " + gate + ",PodProbeMarkerGate=true\n" +
		daemonC + "args.1: " + gate + " -> " + gate + ",PodProbeMarkerGate=true",
	"resourceDistribution: {secretNames: [a], configMapNames: [b]}": "", // only with the gate
	"webhookConfiguration: {timeoutSeconds: 10}":                    "...",
	"webhookConfiguration: {aksIntegration: true}":                  "...",
	"webhookConfiguration: {excludedNamespaces: [ci]}":              "...",
	"externalCerts: {annotations: {a: b}}":                          "", // only with the gate
	"networkPolicy: {enabled: true, apiServerCIDRs: [10.0.0.1/32]}": "+ NetworkPolicy kruise-system kruise-controller-manager",
	"networkPolicy: {apiServerCIDRs: [10.0.0.1/32]}":                "",
	"helmHooks: {enabled: false}": "- ClusterRole kruise-helm-hook\n- ClusterRoleBinding kruise-helm-hook\n" +
		"- Job kruise-system kruise-finalizer\n- ServiceAccount kruise-system kruise-helm-hook",
	"helmHooks: {guard: false}": job + "containers.guard.args.0: --refuse=true -> --refuse=false",
	"helmHooks: {image: {repository: example.com/h, tag: t, pullPolicy: Always}}": job + "containers.guard.image: afloat/manager:dev -> example.com/h:t\n" +
		job + "containers.guard.imagePullPolicy: none -> Always",
	"helmHooks: {resources: {limits: {cpu: 1}}}": job + "containers.guard.resources.limits: none -> {cpu:1}",
	"helmHooks: {nodeSelector: {a: b}, tolerations: [{key: c}], affinity: {podAffinity: {}}}": job + "affinity: none -> {podAffinity:{}}\n" +
		job + "nodeSelector: none -> {a:b}\n" + job + "tolerations: none -> [{key:c}]",
	"helmHooks: {podSpec: {priorityClassName: p}}": job + "priorityClassName: none -> p",
}

// OPS-100 (TestMonitoringIsInstalledIfAskedFor and TestAnyNamespace have the rest), OPS-090 (part),
// OPS-093 (part), ND-014, ND-015, ND-199: each value changes what it says, and nothing else.
func TestValuesChangeWhatTheySay(t *testing.T) {
	c := few(load(t))
	before := mustRender(t, c, "")
	for values, want := range changesOfValues {
		t.Run(values, func(t *testing.T) {
			if want == "..." { // has a test of its own
				return
			}
			got := difference(before, mustRender(t, c, values))
			var wanted []string
			for line := range strings.Lines(want) {
				line = strings.TrimSuffix(line, "\n")
				if begin, all := strings.CutSuffix(line, "..."); all {
					found := 0
					got = slices.DeleteFunc(got, func(s string) bool {
						if strings.HasPrefix(s, begin) {
							found++
							return true
						}
						return false
					})
					if found == 0 {
						t.Errorf("nothing begins with %s", begin)
					}
					continue
				}
				wanted = append(wanted, line)
			}
			if diff := cmp.Diff(sorted(wanted), sorted(got), cmp.Transformer("nil", func(l []string) []string { return append([]string{}, l...) })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every value is in a case, or in a test that it names.
func TestEveryValueHasATest(t *testing.T) {
	elsewhere := regexp.MustCompile(`^(externalCerts|monitoring|daemon\.windowsImage)\.`) // TestExternalCertificatesInstallWhatTheManifestsDo, TestMonitoringIsInstalledIfAskedFor, TestOddValuesAreRefused
	text, err := os.ReadFile(folder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for values := range changesOfValues {
		for _, path := range leaves(t, []byte(values)) {
			for i := range path + "." { // and all above
				if i == len(path) || path[i] == '.' {
					tested[path[:i]] = true
				}
			}
		}
	}
	for _, path := range leaves(t, text) {
		whole := regexp.MustCompile(`\.(requests|limits)\..*`).ReplaceAllString(path, "") // resources are one value
		if !tested[path] && !elsewhere.MatchString(path) && !tested[whole] {
			t.Errorf("no case has %s", path)
		}
	}
}

// leaves are the paths of all that is no map, or an empty one.
func leaves(t *testing.T, text []byte) []string {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var paths []string
	var walk func(path string, value any)
	walk = func(path string, value any) {
		inner, ok := value.(map[string]any)
		if !ok || len(inner) == 0 {
			paths = append(paths, strings.TrimPrefix(path, "."))
			return
		}
		for _, key := range slices.Sorted(maps.Keys(inner)) {
			walk(path+"."+key, inner[key])
		}
	}
	walk("", values)
	return paths
}

// OPS-060 (part), OPS-063 (part): entries that wait long wait as long as the value says, those of pods leave
// out the namespaces of users, and on Azure all leave out what it manages.
func TestWebhookEntriesFollowValues(t *testing.T) {
	c := few(load(t))
	pods := map[string]bool{"mpod.kb.io": true, "vpod.kb.io": true, "vpodeviction.kb.io": true}
	entries := func(values string) map[string]map[string]any {
		all := map[string]map[string]any{}
		for key, object := range mustRender(t, c, values) {
			if !strings.HasSuffix(strings.Fields(key)[0], "WebhookConfiguration") {
				continue
			}
			for name, entry := range numbered(object["webhooks"].([]any)) {
				all[name] = entry.(map[string]any)
			}
		}
		return all
	}
	before := entries("")
	for name, entry := range entries("webhookConfiguration: {timeoutSeconds: 10, aksIntegration: true, excludedNamespaces: [ci, build]}") {
		was := before[name]
		expect := fmt.Sprint(min(was["timeoutSeconds"].(float64), 10))
		if got := fmt.Sprint(entry["timeoutSeconds"]); got != expect {
			t.Errorf("%s waits %s s", name, got)
		}
		selector := text(entry["namespaceSelector"])
		if !strings.Contains(selector, "{key:control-plane,operator:NotIn,values:[true]},{key:kubernetes.azure.com/managedby,operator:NotIn,values:[aks]}") {
			t.Errorf("%s: %s", name, selector)
		}
		if got := strings.Contains(selector, "values:[kube-system,kruise-system,ci,build]"); got != pods[name] {
			t.Errorf("%s: %s", name, selector)
		}
		for _, key := range []string{"timeoutSeconds", "namespaceSelector"} {
			delete(entry, key)
			was = maps.Clone(was)
			delete(was, key)
		}
		if diff := cmp.Diff(was, entry); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// What no gate asks for is left out, so that nobody else has to take it out.
	for gate, gone := range map[string]string{
		"PodWebhook=false":     "mpod.kb.io vpod.kb.io vpodeviction.kb.io",
		"WorkloadSpread=false": "",
		"WorkloadSpread=false,PodUnavailableBudgetDeleteGate=false": "vpod.kb.io vpodeviction.kb.io",
		"ResourcesDeletionProtection=false":                         "vbuiltindeployment.kb.io vbuiltinreplicaset.kb.io vbuiltinstatefulset.kb.io vcustomresourcedefinition.kb.io vingress.kb.io vnamespace.kb.io vservice.kb.io",
	} {
		left := entries("featureGates: " + gate)
		var missing []string
		for name := range before {
			if left[name] == nil {
				missing = append(missing, name)
			}
		}
		if diff := cmp.Diff(gone, strings.Join(sorted(missing), " ")); diff != "" {
			t.Errorf("%s: %s", gate, diff)
		}
	}
}

// OPS-082: rights follow the gates; without the node daemon there is nothing of it.
func TestRightsFollowGates(t *testing.T) {
	c := few(load(t))
	role := func(names ...string) string {
		var lines []string
		for _, name := range names {
			lines = append(lines, "- ClusterRole kruise-manager-"+name+"-role", "- ClusterRoleBinding kruise-manager-"+name+"-rolebinding")
		}
		return strings.Join(lines, "\n")
	}
	const copies = "- Role kruise-daemon-config kruise-pull-secrets-role\n- RoleBinding kruise-daemon-config kruise-pull-secrets-rolebinding"
	const nodes = "- DaemonSet kruise-system kruise-daemon\n- ServiceAccount kruise-system kruise-daemon\n- ClusterRole kruise-daemon-role\n" +
		"- ClusterRoleBinding kruise-daemon-rolebinding\n- Role kruise-daemon-config kruise-daemon-secret-role\n" +
		"- RoleBinding kruise-daemon-config kruise-daemon-secret-rolebinding\n- Namespace kruise-daemon-config\n" +
		"- ValidatingAdmissionPolicy kruise-daemon-isolation\n- ValidatingAdmissionPolicyBinding kruise-daemon-isolation"
	for gates, want := range map[string]string{
		"":                       "",
		"ImagePullJobGate=false": "", // images that are pulled ahead need it
		"ImagePullJobGate=false,PreDownloadImageForInPlaceUpdate=false": role("image-pull") + "\n" + copies,
		"KruiseDaemon=false":                   role("image-pull", "nodes", "sidecarterminator") + "\n" + copies + "\n" + nodes,
		"SidecarTerminator=false":              role("sidecarterminator"),
		"WorkloadSpread=false":                 role("workloadspread"),
		"PodUnavailableBudgetDeleteGate=false": role("budget"),
		"PodUnavailableBudgetDeleteGate=false,PodUnavailableBudgetUpdateGate=true": "",
		"StatefulSetAutoResizePVCGate=false":                                       role("storage"),
		"ResourceDistributionGate=true":                                            strings.ReplaceAll(role("resourcedistribution"), "- ", "+ "), // RD-021
		"DeletionProtectionForCRDCascadingGate=true":                               strings.ReplaceAll(role("definitions"), "- ", "+ "),
	} {
		var got []string
		for _, line := range difference(mustRender(t, c, `featureGates: ""`), mustRender(t, c, "featureGates: '"+gates+"'")) {
			if !strings.Contains(line, ".args") && !strings.Contains(line, "WebhookConfiguration") {
				got = append(got, line)
			}
		}
		var wanted []string
		if want != "" {
			wanted = strings.Split(want, "\n")
		}
		if diff := cmp.Diff(sorted(wanted), sorted(got)); diff != "" {
			t.Errorf("%s: %s", gates, diff)
		}
	}
	narrow := mustRender(t, c, "featureGates: ResourceDistributionGate=true\nresourceDistribution: {secretNames: [login]}")["ClusterRole kruise-manager-resourcedistribution-role"]
	for _, part := range []string{"resourceNames:[login],resources:[secrets],verbs:[delete,get,list,patch,watch]}", "{apiGroups:[],resources:[configmaps],verbs:[delete,get,list,patch,watch]}",
		"{apiGroups:[],resources:[secrets],verbs:[create]}"} {
		if got := text(narrow["rules"]); !strings.Contains(got, part) {
			t.Errorf("no %s in %s", part, got)
		}
	}
	listing := mustRender(t, c, "featureGates: DeletionProtectionForCRDCascadingGate=true\ninstallation: {roleListGroups: [example.com]}")["ClusterRole kruise-manager-definitions-role"]
	if got := text(listing["rules"]); got != "[{apiGroups:[example.com],resources:[*],verbs:[list]}]" {
		t.Error(got)
	}
	// The right that the gate brings by default lets nobody list Secrets.
	listing = mustRender(t, c, "featureGates: DeletionProtectionForCRDCascadingGate=true")["ClusterRole kruise-manager-definitions-role"]
	if got := text(listing["rules"]); got != "[{apiGroups:[apps.kruise.io,policy.kruise.io],resources:[*],verbs:[list]}]" {
		t.Error(got)
	}
}

// Values that make no sense are refused, with the name of the field.
func TestOddValuesAreRefused(t *testing.T) {
	c := few(load(t))
	for values, named := range map[string]string{
		"manager: {replica: 3}":                                        "replica",
		"replicas: 3":                                                  "replicas",
		"manager: {replicas: three}":                                   "/manager/replicas",
		"manager: {image: {tag: 1.10}}":                                "/manager/image/tag",
		"manager: {image: latest}":                                     "/manager/image",
		"manager: {webhook: {port: 0}}":                                "/manager/webhook/port",
		"manager: {webhook: {callerNames: [a]}}":                       "manager.webhook.callersConfigMap",
		"manager: {webhook: {callersConfigMap: a, callerNames: ['']}}": "/manager/webhook/callerNames/0",
		"manager: {webhook: {callersConfigMap: A_B}}":                  "/manager/webhook/callersConfigMap",
		"manager: {extraArgs: --v=5}":                                  "/manager/extraArgs",
		"manager: {resyncPeriod: soon}":                                "/manager/resyncPeriod",
		"manager: {image: {repository: openkruise/kruise-manager}}":    "manager.image.repository",
		"daemon: {image: {repository: kruise-daemon}}":                 "daemon.image.repository",
		"helmHooks: {image: {repository: x/kruise-helm-hook}}":         "helmHooks.image.repository",
		"webhookConfiguration: {timeoutSeconds: 31}":                   "/webhookConfiguration/timeoutSeconds",
		"daemon: {windowsImage: {repository: x}}":                      "daemon.windowsImage.repository",
		"daemon: {socketLocation: run}":                                "/daemon/socketLocation",
		"daemon: {sockets: [containerd.sock]}":                         "/daemon/sockets/0",
		"daemon: {sockets: [/containerd.sock]}":                        "/daemon/sockets/0",
		"daemon: {sockets: ['/run/../etc/shadow']}":                    "/daemon/sockets/0",
		"daemon: {sockets: ['/a/b,c/d']}":                              "/daemon/sockets/0",
		"daemon: {sockets: [/run/a/b.sock], socketFile: b.sock}":       "daemon.socketFile",
		"daemon: {credentialProvider: {enable: true}}":                 "daemon.credentialProvider.hostPath",
		"featureGates: [A]":                                            "/featureGates",
		"networkPolicy: {enabled: true}":                               "networkPolicy.apiServerCIDRs",
		"networkPolicy: {enabled: true, apiServerCIDRs: [10.0.0.1/32]}\nmanager: {hostNetwork: true}": "manager.hostNetwork",
		"networkPolicy: {apiServerCIDRs: [10.0.0.1]}":                                                 "/networkPolicy/apiServerCIDRs",
		"externalCerts: {certManager: {enabled: true}}":                                               "externalCerts.certManager.enabled",
		"installation: {namespace: Upper}":                                                            "/installation/namespace",
		"installation: {namespace: a, daemonConfigNamespace: a}":                                      "installation.daemonConfigNamespace",
		"installation: {roleListGroups: ['*']}":                                                       "/installation/roleListGroups/0",
		"installation: {roleListGroups: ['']}":                                                        "/installation/roleListGroups/0",
		"installation: {roleListGroups: []}":                                                          "/installation/roleListGroups",
		"crds: {managed: perhaps}":                                                                    "/crds/managed",
		"imagePullSecrets: [secret]":                                                                  "/imagePullSecrets",
	} {
		if _, err := render(c, values); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// OPS-113: whatever value an older values file lacks, the chart renders as with its default.
func TestOlderValuesFiles(t *testing.T) {
	c := few(load(t))
	want := mustRender(t, c, "")
	text, err := os.ReadFile(folder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	above := map[string]bool{}
	for _, path := range leaves(t, text) {
		parts := strings.Split(path, ".")
		for i := range parts {
			above[strings.Join(parts[:i+1], ".")] = true
		}
	}
	for path := range above {
		// The parts of what users give as a whole are theirs.
		if regexp.MustCompile(`\.resources\.`).MatchString(path) {
			continue
		}
		older := *c
		older.Values = without(c.Values, strings.Split(path, "."))
		if diff := difference(want, mustRender(t, &older, "")); len(diff) > 0 {
			t.Errorf("without %s:\n%s", path, strings.Join(diff, "\n"))
		}
	}
}

// without is a copy of a map that lacks a path.
func without(values map[string]any, path []string) map[string]any {
	values = maps.Clone(values)
	if inner, ok := values[path[0]].(map[string]any); ok && len(path) > 1 {
		values[path[0]] = without(inner, path[1:])
	} else {
		delete(values, path[0])
	}
	return values
}

// OPS-105: the chart states the range of Kubernetes, and what its version is.
func TestTheChartStatesItsVersions(t *testing.T) {
	c := few(load(t))
	if c.Metadata.KubeVersion != ">=1.30.0-0" || c.Metadata.Name != "kruise" {
		t.Errorf("%+v", c.Metadata)
	}
	c.Metadata.AppVersion = "v1.2.3"
	image := mustRender(t, c, "")["DaemonSet kruise-system kruise-daemon"]
	if got := text(image); !strings.Contains(got, "image:afloat/daemon:v1.2.3") {
		t.Error(got)
	}
}

// OPS-094 (part): what scrapes metrics that are served securely shows its token, and trusts the authority of
// the webhooks.
func TestSecureMetricsAreScraped(t *testing.T) {
	for gates, key := range map[string]string{"": "ca-cert.pem", "EnableExternalCerts=true": "ca.crt"} {
		objects := mustRender(t, load(t), "installation: {namespace: ours}\nfeatureGates: '"+gates+"'\nmanager: {metrics: {secure: true}}\nmonitoring: {serviceMonitor: {enabled: true}}")
		want := "{bearerTokenFile:/var/run/secrets/kubernetes.io/serviceaccount/token,honorLabels:true,interval:30s,port:metrics,scheme:https," +
			"tlsConfig:{ca:{secret:{key:" + key + ",name:kruise-webhook-certs}},serverName:kruise-webhook-service.ours.svc}}"
		monitor := objects["ServiceMonitor ours kruise-controller-manager"]
		if got := text(monitor); !strings.Contains(got, want) {
			t.Errorf("%q: %s", gates, got)
		}
		if got := text(objects["ServiceMonitor ours kruise-daemon"]); strings.Contains(got, "https") || !strings.Contains(got, "port:metrics") {
			t.Errorf("%q: %s", gates, got)
		}
	}
}
