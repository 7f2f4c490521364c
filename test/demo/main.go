// Command demo plays the story on the cluster of KUBECONFIG and displays it. It exits with 0 only if every
// pod was updated in place.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := os.Getenv("KUBECONFIG")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading KUBECONFIG: %w", err)
	}

	c, err := story.NewClient(config)
	if err != nil {
		return err
	}

	screen := newScreen()
	s := story.Story{Client: c, Limit: 10 * time.Minute, Show: screen.show}
	pods, err := s.Play(ctx)
	if err != nil {
		return err
	}

	inPlace, recreated := report(pods)
	fmt.Printf("\n%d of %d pods updated in place, %d recreated\n", inPlace, len(pods), recreated)
	fmt.Printf(`
The cluster goes on running. Try:
  export KUBECONFIG=%s
  alias kubectl=$(hack/kubectl.sh)
  kubectl get clone nginxweb1 -o wide
  kubectl get events --field-selector involvedObject.name=nginxweb1
  kubectl patch clone nginxweb1 --type=json -p '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.27"}]'
  kubectl get pods -l app=nginxweb1 -w
  make demo-down
`, kubeconfig)
	if inPlace != len(pods) || recreated > 0 {
		return fmt.Errorf("not every pod was updated in place")
	}

	return nil
}

func report(pods []story.Pod) (inPlace, recreated int) {
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tUID\tNODE\tIP\tIMAGE\tRESTARTS\tNOT READY")

	for _, pod := range pods {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s -> %s\t%d -> %d\t%.1f s\n", pod.Name, pod.UID, pod.Node,
			pod.IP, pod.ImageBefore, pod.ImageAfter, pod.RestartsBefore, pod.RestartsAfter,
			pod.NotReady.Seconds())
		if pod.Recreated {
			recreated++
		} else {
			inPlace++
		}
	}

	table.Flush()
	return inPlace, recreated
}

// screen shows frames: on a terminal as one picture that is redrawn, otherwise as one block of text for every
// change.
type screen struct {
	terminal bool
	height   int
	title    string
	last     string
}

func newScreen() *screen {
	info, err := os.Stdout.Stat()
	return &screen{terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (s *screen) show(frame story.Frame) {
	if frame.Title != s.title {
		s.title, s.height, s.last = frame.Title, 0, ""
		fmt.Printf("\n▸ %s\n", frame.Title)
	}

	lines := picture(frame)
	body := strings.Join(lines, "\n")
	if !s.terminal {
		if body != s.last {
			s.last = body
			fmt.Printf("[%5.1f s] %s\n", frame.Elapsed.Seconds(), strings.Join(lines, "\n          "))
		}
		return
	}

	if s.height > 0 {
		fmt.Printf("\033[%dA", s.height)
	}

	for _, line := range lines {
		fmt.Printf("\033[2K%s\n", line)
	}

	fmt.Printf("\033[2K  %.0f s\n", frame.Elapsed.Seconds())
	for range s.height - len(lines) - 1 {
		fmt.Print("\033[2K\n")
	}

	s.height = max(s.height, len(lines)+1)
}

func picture(frame story.Frame) []string {
	status := frame.Set.Status
	lines := []string{fmt.Sprintf("  %d pods, %d ready, %d available, %d updated", status.Replicas,
		status.ReadyReplicas, status.AvailableReplicas, status.UpdatedReplicas)}
	for i := range frame.Pods {
		pod := &frame.Pods[i]
		lines = append(lines,
			fmt.Sprintf("  %s %-22s %-14s %-15s %-14s restarts %d  %s", mark(pod), pod.Name,
				pod.Spec.NodeName, pod.Status.PodIP, pod.Spec.Containers[0].Image, restarts(pod), state(pod)))
	}
	return lines
}

func mark(pod *corev1.Pod) string {
	if story.Ready(pod) {
		return "●"
	}
	return "○"
}

func state(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		if waiting := pod.Status.ContainerStatuses[i].State.Waiting; waiting != nil {
			return waiting.Reason
		}
	}

	switch {
	case pod.Labels[pub.LifecycleState] == string(pub.LifecycleStateUpdating):
		return "updating in place"
	case story.Ready(pod):
		return "ready"
	case pod.Spec.NodeName == "":
		return "to be scheduled"
	}

	return "starting"
}

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}
