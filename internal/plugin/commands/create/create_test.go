package create

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

const (
	cron = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    metadata:
      labels: {team: shop}
      annotations: {note: from the template, cronjob.kubernetes.io/instantiate: never}
    spec:
      backoffLimit: 2
      fieldOfTomorrow: {kept: true}
      template: {spec: {restartPolicy: OnFailure, containers: [{name: report, image: report:1}]}}
`
	jobSchedule = `
apiVersion: apps.kruise.io/VERSION
kind: AdvancedCronJob
metadata: {name: jobs}
spec: {schedule: "0 * * * *", template: {jobTemplate: {metadata: {labels: {a: b}}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}}
`
	broadcastSchedule = `
apiVersion: apps.kruise.io/VERSION
kind: AdvancedCronJob
metadata: {name: everywhere}
spec:
  schedule: "0 * * * *"
  template: {broadcastJobTemplate: {metadata: {annotations: {x: y}}, spec: {parallelism: 10%, template: {spec: {containers: [{name: c, image: i}]}}}}}
`
	imageSchedule = `
apiVersion: apps.kruise.io/VERSION
kind: AdvancedCronJob
metadata: {name: images}
spec: {schedule: "0 * * * *", template: {imageListPullJobTemplate: {spec: {images: ["a:1", "b:1"], completionPolicy: {type: Always}}}}}
`
	pod = `
apiVersion: v1
kind: Pod
metadata: {name: web-7}
spec:
  initContainers: [{name: setup, image: i}, {name: mesh, image: i, restartPolicy: Always}]
  containers:
  - {name: app, image: i, lifecycle: {postStart: {exec: {command: [a]}}}}
  - {name: log, image: i}
`
	cloneSet = `
apiVersion: apps.kruise.io/VERSION
kind: CloneSet
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}}
`
)

func server(t *testing.T, version string) *plugintest.Server {
	var manifests []string
	for _, m := range []string{cron, jobSchedule, broadcastSchedule, imageSchedule, pod, cloneSet} {
		manifests = append(manifests, strings.ReplaceAll(m, "VERSION", version))
	}
	return plugintest.NewIn(t, "shop", version, manifests...)
}

func play(t *testing.T, s *plugintest.Server, lines ...string) string {
	var all string
	for _, line := range lines {
		all += s.Play(t, New, append([]string{"create"}, strings.Fields(line)...)...)
	}
	return all
}

// OPS-160: jobs of an image or of a schedule, of either version of the API; what is wrong is refused and
// nothing written; a dry run of the client prints kind and version as the server has them. create -f is
// kubectl's.
func TestJobsAreCreatedOfAnImageOrASchedule(t *testing.T) {
	t.Run("file", testFile)
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			golden.Compare(t, "jobs-"+version, play(t, server(t, version),
				"job clean --image=busybox -- rm -rf /tmp",
				"job plain --image=busybox",
				"job now --from=cronjob/nightly",
				"job now2 --from=acj/jobs",
				"broadcastJob everywhere --image=busybox -- true",
				"bcj everywhere2 --from=acj/everywhere",
				"imagelistpulljob images --from=acj/images",
				"job dry --image=busybox --dry-run=client -o yaml",
				"bcj dry --from=acj/everywhere --dry-run=client -o yaml",
				"imagelistpulljob dry --from=acj/images --dry-run=client -o name",
				"bcj dry --image=busybox --dry-run=server --field-manager=me --validate=strict",
				"job bad",
				"job bad --image=i --from=acj/jobs",
				"job bad --from=acj/jobs -- true",
				"job bad --from=acj/everywhere",
				"bcj bad --from=acj/jobs",
				"bcj bad --from=cronjob/nightly",
				"imagelistpulljob bad --from=acj/jobs",
				"imagelistpulljob bad",
				"job bad --from=acj/nowhere",
				"job --image=i",
				"job now --image=i",
			))
		})
	}
}

func testFile(t *testing.T) {
	s := plugintest.NewIn(t, "shop", "v1beta1")
	golden.Compare(t, "file", s.Play(t, New, "create", "-f", "testdata/cloneset.yaml", "--validate=false"))
	if s.Get(t, "clonesets", "web") == nil {
		t.Error("nothing was created")
	}
}

// OPS-161: a request for all containers or for some, with all of its fields and the numbers of its flags, and
// an error if the pod or a container is missing. A lifecycle with postStart alone does no harm.
func TestRequestsHaveAllOfTheirFlags(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			golden.Compare(t, "requests-"+version, play(t, server(t, version),
				"ContainerRecreateRequest all --pod web-7",
				"crr some --pod=web-7 --containers=log,mesh,log --unreadyGracePeriodSeconds=0 --minStartedSeconds=60",
				"crr dry -p web-7 --dry-run=client -o yaml",
				"crr dry --pod=web-7 --dry-run=server",
				"crr bad --pod=web-8",
				"crr bad --pod=web-7 --containers=app,nothing",
				"crr bad --pod=web-7 --containers=setup",
				"crr bad --pod=web-7 --minStartedSeconds=-1",
				"crr bad",
				"crr all --pod=web-7",
			))
		})
	}
}

// OPS-168: budgets for a workload or for labels.
func TestBudgetsAreCreatedForAWorkloadOrLabels(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			golden.Compare(t, "budgets-"+version, play(t, server(t, version),
				"podunavailablebudget web --target=cloneset/web --max-unavailable=25%",
				"pub cache --selector=app=cache,!debug --min-available=2",
				"pub dry --target=clone/web --min-available=100% --dry-run=client -o yaml",
				"pub bad --max-unavailable=1",
				"pub bad --selector=a=b --target=clone/web --max-unavailable=1",
				"pub bad --selector=a=b",
				"pub bad --selector=a=b --max-unavailable=1 --min-available=1",
				"pub bad --selector=a=b --max-unavailable=101%",
				"pub bad --selector=a=b --max-unavailable=-1",
				"pub bad --selector=a=b --max-unavailable=many",
				"pub bad --selector=a=(b --max-unavailable=1",
				"pub bad --target=clone/nothing --max-unavailable=1",
			))
		})
	}
}
