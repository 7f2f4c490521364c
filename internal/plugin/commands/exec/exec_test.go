package exec

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

// executor prints what it is asked to execute.
type executor struct{}

func (executor) Execute(u *url.URL, _ *restclient.Config, stdin io.Reader, stdout, _ io.Writer, tty bool, _ remotecommand.TerminalSizeQueue) error {
	_, err := fmt.Fprintf(stdout, "%s?%s stdin=%t tty=%t\n", u.Path, u.RawQuery, stdin != nil, tty)
	return err
}

func (e executor) ExecuteWithContext(_ context.Context, u *url.URL, c *restclient.Config, in io.Reader, out, errOut io.Writer, tty bool,
	q remotecommand.TerminalSizeQueue) error {
	return e.Execute(u, c, in, out, errOut, tty, q)
}

func fake(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, executor{}, time.Millisecond)
}

func pod(name, owner, phase, annotations string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  labels: {app: web}
  annotations: {%s}
  ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: %s, controller: true}]
spec: {containers: [{name: app, image: i}, {name: mesh-1, image: i}, {name: mesh-2, image: i}]}
status: {phase: %s}
`, name, annotations, owner, phase)
}

const (
	cloneSet = "{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: NAME}, spec: {selector: {matchLabels: {app: web}}}}"
	hot      = `kruise.io/sidecarset-working-hotupgrade-container: '{"mesh":"mesh-2"}'`
)

func server(t *testing.T) *plugintest.Server {
	return plugintest.NewIn(t, "shop", "v1beta1",
		strings.ReplaceAll(cloneSet, "NAME", "web"), strings.ReplaceAll(cloneSet, "NAME", "empty"), strings.ReplaceAll(cloneSet, "NAME", "over"),
		pod("web-a", "uid-cloneset-web", "Pending", ""), pod("web-b", "uid-cloneset-web", "Running", hot),
		pod("web-c", "uid-cloneset-web", "Succeeded", ""), pod("other", "uid-of-another", "Running", ""),
		pod("over-a", "uid-cloneset-over", "Failed", ""),
		pod("named", "uid-of-another", "Running", "kubectl.kubernetes.io/default-container: mesh-1"),
		pod("broken", "uid-of-another", "Running", "kruise.io/sidecarset-working-hotupgrade-container: '{'"),
		"{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: site}, spec: {selector: {matchLabels: {app: site}}}}",
		"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: site-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: site, "+
			"uid: uid-deployment-site, controller: true}]}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: site-1-a, labels: {app: site}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, "+
			"name: site-1, uid: uid-replicaset-site-1, controller: true}]}, spec: {containers: [{name: c}]}, status: {phase: Running}}",
	)
}

// testExec: the container is the one named, the default or the first; with -S that which works for the
// sidecar, said on the error stream; a pod of a workload is one that runs; completed pods are an error.
func testExec(t *testing.T) {
	s := server(t)
	var all string
	for _, line := range []string{
		"web-b -- date -u", "web-b -c mesh-1 -i -- sh", "web-b -it -- sh", "named -- date", "web-b -S mesh -- nginx -t", "web-b -q -S mesh -- nginx -t",
		"clone/web -- date", "clone/web -S mesh -- date", "svc/web -c app -- date", "deploy/site -- date",
		"web-c -- date", "clone/over -- date", "web-b -S nothing -- date", "named -S mesh -- date", "broken -S mesh -- date",
		"web-b -S mesh -c app -- date", "web-b -c nothing -- date",
		"clone/empty --pod-running-timeout=5ms -- date", "web-a --pod-running-timeout=5ms -- date",
		"web-b", "web-b date", "nothing -- date", "-- date",
	} {
		all += s.Play(t, fake, append([]string{"exec"}, strings.Fields(line)...)...)
	}
	golden.Compare(t, "exec", all)
}

// OPS-163, SS-246: a command is executed in a container of a pod or of a pod of a workload, or in the one
// that works for a sidecar. A pod that does not run yet is waited for, up to 60 seconds.
func TestACommandRunsInTheContainerThatIsMeant(t *testing.T) {
	t.Run("chooses", testExec)
	if flag := New(nil, genericiooptions.IOStreams{}).Flag("pod-running-timeout"); flag.DefValue != "1m0s" {
		t.Errorf("a pod is waited for for %s", flag.DefValue)
	}
	for name, args := range map[string][]string{"pod": {"web-a"}, "workload": {"clone/empty"}} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			s.Put(t, pod("empty-a", "uid-cloneset-empty", "Pending", ""))
			go func() {
				for _, name := range []string{"web-a", "empty-a"} {
					s.Change(t, "pods", name, func(o map[string]any) { o["status"] = map[string]any{"phase": "Running"} })
				}
			}()
			out, err := s.Run(t, fake, append(append([]string{"exec"}, args...), "--", "date")...).Output()
			if err != nil {
				t.Errorf("exec: %v", err)
			}
			if !strings.Contains(out, "-a/exec?") {
				t.Errorf("output: got %q, want the request to the running pod in it", out)
			}
		})
	}
}
