package plugintest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// Command is a function that creates a command, such as the packages below internal/plugin export.
type Command func(cmdutil.Factory, genericiooptions.IOStreams) *cobra.Command

// Result is the outcome of a command.
type Result struct {
	Args        []string
	Out, ErrOut string
	Err         error
}

// Output returns what the command wrote to its standard output, and its error.
func (r Result) Output() (string, error) { return r.Out, r.Err }

// String returns the result as a terminal would show it.
func (r Result) String() string {
	text := "$ kubectl afloat " + strings.Join(r.Args, " ") + "\n" + r.Out + r.ErrOut
	if r.Err != nil {
		text += "error: " + r.Err.Error() + "\n"
	}
	return text
}

// Transcript joins results.
func Transcript(results ...Result) string {
	var text strings.Builder
	for i, r := range results {
		if i > 0 {
			text.WriteString("\n")
		}
		fmt.Fprint(&text, r)
	}
	return text.String()
}

// Kubeconfig writes a kubeconfig file for clients of the server, and returns its name.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	file := filepath.Join(s.folder, "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: test,
clusters: [{name: test, cluster: {server: '%s'}}],
contexts: [{name: test, context: {cluster: test, namespace: %s}}]}
`, s.URL, s.namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// flags returns kubectl's global flags, set for a client of the server.
func (s *Server) flags(t testing.TB) *genericclioptions.ConfigFlags {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.QPS = -1 // no limit
		return c
	})
	config := s.Kubeconfig(t)
	flags.KubeConfig = &config
	return flags
}

// getter is kubectl's getter of clients, except that it keeps discovery in memory and not on disk.
type getter struct {
	*genericclioptions.ConfigFlags
	cache discovery.CachedDiscoveryInterface
}

// ToDiscoveryClient returns the discovery client.
func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) { return g.cache, nil }

// ToRESTMapper returns a mapper that knows all names of the resources.
func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	return restmapper.NewShortcutExpander(
		restmapper.NewDeferredDiscoveryRESTMapper(g.cache), g.cache, nil), nil
}

// factory returns a factory whose clients use the server, according to the flags.
func (s *Server) factory(t testing.TB, flags *genericclioptions.ConfigFlags) cmdutil.Factory {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		s.served = memory.NewMemCacheClient(client)
	}

	return cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(getter{flags, s.served}))
}

// Factory returns a factory whose clients use the server.
func (s *Server) Factory(t testing.TB) cmdutil.Factory {
	t.Helper()
	return s.factory(t, s.flags(t))
}

// Run runs a command with arguments, among them kubectl's global flags. The first argument is the name of the
// command.
func (s *Server) Run(t testing.TB, command Command, args ...string) Result {
	t.Helper()
	return s.RunWith(t, "", command, args...)
}

// fatal is the message of a fatal error of kubectl.
type fatal string

// RunWith is like Run, with the given standard input.
func (s *Server) RunWith(t testing.TB, in string, command Command, args ...string) (result Result) {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &errOut}

	defer func() { // kubectl's own commands end the process on an error
		switch end := recover().(type) {
		case nil:
		case fatal:
			result = Result{args, out.String(), errOut.String(),
				errors.New(strings.TrimPrefix(strings.TrimSpace(string(end)), "error: "))}
		default:
			panic(end)
		}
	}()

	cmdutil.BehaviorOnFatal(func(message string, code int) {
		if code == 0 {
			t.Error("an error with the exit code 0")
		}
		panic(fatal(message))
	})
	defer cmdutil.DefaultBehaviorOnFatal()

	defer func(before []string) { os.Args = before }(os.Args)
	os.Args = append([]string{"kubectl-afloat"}, args...) // --record records them

	flags := s.flags(t)
	root := &cobra.Command{
		Use:           "afloat",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl afloat"},
	}
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(command(s.factory(t, flags), streams))
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errOut)

	err := root.Execute()
	return Result{args, out.String(), errOut.String(), err}
}

// Play runs a command and returns a transcript for golden files: the command line, the output, the error, and
// the write requests. It forgets earlier requests.
func (s *Server) Play(t testing.TB, command Command, args ...string) string {
	t.Helper()
	s.Requests()
	r := s.Run(t, command, args...)

	var text strings.Builder
	fmt.Fprintf(&text, "$ kubectl afloat %s\n%s", strings.Join(args, " "), r.Out)
	for line := range strings.Lines(r.ErrOut) {
		fmt.Fprintf(&text, "! %s", line)
	}

	if r.Err != nil {
		fmt.Fprintf(&text, "error: %s\n", strings.TrimPrefix(strings.TrimSpace(r.Err.Error()), "error: "))
	}

	for _, request := range s.Requests() {
		fmt.Fprintf(&text, "> %s\n", request)
	}

	return text.String() + "\n"
}
