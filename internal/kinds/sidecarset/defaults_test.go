package sidecarset

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// SS-010 (part), SS-011, SS-012, SS-013 (part), SS-014, SS-015, SS-D11: exactly these defaults; a second time
// nothing changes; what nobody knows stays.
func TestDefaults(t *testing.T) {
	for name, test := range map[string]struct{ given, want string }{
		"a set of nothing (SS-010)": {`{}`, `{updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, revisionHistoryLimit: 10}`},
		"what is given stays": {`{updateStrategy: {type: NotUpdate, partition: "0%", maxUnavailable: 0}, revisionHistoryLimit: 0, patchPodMetadata: [{patchPolicy: Overwrite}]}`,
			`{updateStrategy: {type: NotUpdate, partition: "0%", maxUnavailable: 0}, revisionHistoryLimit: 0, patchPodMetadata: [{patchPolicy: Overwrite}]}`},
		"metadata and revision": {`{patchPodMetadata: [{annotations: {a: b}}], injectionStrategy: {revision: {revisionName: r}}}`,
			`{patchPodMetadata: [{annotations: {a: b}, patchPolicy: Retain}], injectionStrategy: {revision: {revisionName: r, policy: Always}},
			  updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, revisionHistoryLimit: 10}`},
		"containers": {`{containers: [{name: a, image: "i:1", future: 1, ports: [{containerPort: 1}], resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}],
			  env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], resources: {limits: {cpu: 100u, memory: 1Gi}},
			  livenessProbe: {httpGet: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 2}, startupProbe: {httpGet: {port: 1}},
			  lifecycle: {postStart: {httpGet: {port: 1}}, preStop: {exec: {command: [x]}}}, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.labels['x']"}}}, {sourceContainerNameFrom: {}}]}],
			  initContainers: [{name: b, image: i, shareVolumeDevicePolicy: {}}]}`,
			`{containers: [{name: a, image: "i:1", future: 1, imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File,
			  podInjectPolicy: BeforeAppContainer, upgradeStrategy: {upgradeType: ColdUpgrade}, shareVolumePolicy: {type: disabled}, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}],
			  ports: [{containerPort: 1, protocol: TCP}], env: [{name: NAME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}], resources: {limits: {cpu: 1m, memory: 1Gi}},
			  livenessProbe: {httpGet: {port: 1, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3},
			  readinessProbe: {tcpSocket: {port: 1}, timeoutSeconds: 1, periodSeconds: 2, successThreshold: 1, failureThreshold: 3},
			  startupProbe: {httpGet: {port: 1, path: /, scheme: HTTP}, successThreshold: 1},
			  lifecycle: {postStart: {httpGet: {port: 1, path: /, scheme: HTTP}}, preStop: {exec: {command: [x]}}},
			  transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['x']"}}}, {sourceContainerNameFrom: {}}]}],
			  initContainers: [{name: b, image: i, imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, podInjectPolicy: AfterAppContainer,
			  upgradeStrategy: {upgradeType: ColdUpgrade}, shareVolumePolicy: {type: disabled}, shareVolumeDevicePolicy: {}}],
			  updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, revisionHistoryLimit: 10}`},
		"nothing else of a container (SS-015)": {`{containers: [{name: a, image: "i:1", command: [x], workingDir: /x, tty: true, stdinOnce: true,
			  env: [{name: A, value: ""}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: D, valueFrom: {configMapKeyRef: {key: k}}}],
			  envFrom: [{secretRef: {name: s}}], securityContext: {capabilities: {add: [X]}}, volumeMounts: [{name: v, mountPath: /x}], volumeDevices: [{name: b, devicePath: /b}],
			  resources: {limits: {cpu: "1"}}, startupProbe: {tcpSocket: {port: 1}}, resourcesPolicy: {resourcesExpr: {limits: {cpu: cpu}}}, transferEnv: [{envName: E}]}]}`,
			`{containers: [{name: a, image: "i:1", command: [x], workingDir: /x, tty: true, stdinOnce: true, imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File,
			  podInjectPolicy: BeforeAppContainer, upgradeStrategy: {upgradeType: ColdUpgrade}, shareVolumePolicy: {type: disabled},
			  env: [{name: A, value: ""}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: D, valueFrom: {configMapKeyRef: {key: k}}}],
			  envFrom: [{secretRef: {name: s}}], securityContext: {capabilities: {add: [X]}}, volumeMounts: [{name: v, mountPath: /x}], volumeDevices: [{name: b, devicePath: /b}],
			  resources: {limits: {cpu: "1"}}, startupProbe: {tcpSocket: {port: 1}, successThreshold: 1}, resourcesPolicy: {resourcesExpr: {limits: {cpu: cpu}}}, transferEnv: [{envName: E}]}],
			  updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, revisionHistoryLimit: 10}`},
		"volumes": {`{volumes: [{name: none}, {name: future, hologram: {}}, {name: h, hostPath: {path: /x}}, {name: s, secret: {secretName: s}}, {name: c, configMap: {name: c}},
			  {name: d, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}},
			  {name: p, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}, {name: r, persistentVolumeClaim: {claimName: x}}]}`,
			`{volumes: [{name: none, emptyDir: {}}, {name: future, hologram: {}}, {name: h, hostPath: {path: /x, type: ""}}, {name: s, secret: {secretName: s, defaultMode: 420}},
			  {name: c, configMap: {name: c, defaultMode: 420}}, {name: d, downwardAPI: {defaultMode: 420, items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}},
			  {name: p, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}, {downwardAPI: {items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}]}},
			  {name: r, persistentVolumeClaim: {claimName: x}}], updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, revisionHistoryLimit: 10}`},
	} {
		t.Run(name, func(t *testing.T) {
			set := parse(t, "{spec: "+test.given+"}")
			for range 2 {
				SetDefaults(&set.Spec)
				text, err := json.Marshal(set.Spec)
				if err != nil {
					t.Fatal(err)
				}
				var got, want any
				if err := yaml.Unmarshal(text, &got); err != nil {
					t.Fatal(err)
				}
				if err := yaml.Unmarshal([]byte(test.want), &want); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// SS-013, SS-291: what a user writes gets the golden hashes, however quantities are written.
func TestHashOfWhatIsWritten(t *testing.T) {
	set := parse(t, `{spec: {containers: [{name: shipper, image: "example.com/shipper:1.0", volumeMounts: [{name: spool, mountPath: /spool}]}], volumes: [{name: spool, emptyDir: {}}]}}`)
	SetDefaults(&set.Spec)
	if hash, err := Hash(&set.Spec); err != nil {
		t.Errorf("unexpected error: %v\n%s", err, hash)
	} else if hash != "bffdzd74cc9942f2c56xx4v9wdc4w7c8z2vzx9c2cz644cxzv8cz6w824d7b4579" {
		t.Errorf("hash: got %q, want %q\n%v", hash,
			"bffdzd74cc9942f2c56xx4v9wdc4w7c8z2vzx9c2cz644cxzv8cz6w824d7b4579", err)
	}
	var hashes []string
	for _, quantities := range []string{`{cpu: 1000m, memory: 1024Mi}`, `{cpu: "1", memory: 1Gi}`} {
		set := parse(t, `{spec: {containers: [{name: a, image: i, resources: {limits: `+quantities+`}}]}}`)
		SetDefaults(&set.Spec)
		hash, err := Hash(&set.Spec)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
	}
	if hashes[0] != hashes[1] {
		t.Errorf("first hash: got %q, want %q\n%v", hashes[0], hashes[1], hashes)
	}
}

// SS-013: as Kubernetes itself does.
func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]string{"i": "Always", "i:latest": "Always", "i:1": "IfNotPresent", "host:5000/i": "Always",
		"host:5000/i:1":                       "IfNotPresent",
		"i@sha256:" + strings.Repeat("a", 64): "IfNotPresent", "i:latest@sha256:" + strings.Repeat("a", 64): "IfNotPresent", "": "Always"} {
		if got := pullPolicy(image); string(got) != want {
			t.Errorf("%q: pull policy of the image: got %q, want %q", image, string(got), want)
		}
	}
}
