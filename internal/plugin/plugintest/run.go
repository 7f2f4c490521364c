package plugintest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
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

// String returns the result as a terminal would show it.
func (r Result) String() string {
	text := "$ kubectl afloat " + strings.Join(r.Args, " ") + "\n" + r.Out + r.ErrOut
	if r.Err != nil {
		text += "error: " + r.Err.Error() + "\n"
	}
	return text
}

// Kubeconfig writes a kubeconfig file for clients of the server, and returns its name.
func (s *Server) Kubeconfig(t *testing.T) string {
	t.Helper()
	config := filepath.Join(s.folder, "config")
	text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, namespace: default}}],\n" +
		"clusters: [{name: c, cluster: {server: '" + s.URL + "'}}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// Factory returns a factory whose clients use the server.
func (s *Server) Factory(t *testing.T) cmdutil.Factory {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(1000).WithDiscoveryQPS(1000).
		WithWrapConfigFn(func(c *rest.Config) *rest.Config { c.QPS = -1; return c })
	config, cache := s.Kubeconfig(t), filepath.Join(s.folder, "cache") // the cache of discovery
	flags.KubeConfig, flags.CacheDir = &config, &cache
	return cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(flags))
}

// Run runs a command with arguments. The first argument is the name of the command.
func (s *Server) Run(t *testing.T, command Command, args ...string) Result {
	t.Helper()
	return s.RunWith(t, "", command, args...)
}

// RunWith is like Run, with the given standard input.
func (s *Server) RunWith(t *testing.T, in string, command Command, args ...string) (result Result) {
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

	root := &cobra.Command{Use: "afloat", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(command(s.Factory(t), streams))
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errOut)

	err := root.Execute()
	return Result{args, out.String(), errOut.String(), err}
}

// fatal is the message of a fatal error of kubectl.
type fatal string

// Patches returns the JSON patches that the server received, and forgets them. Each consists of its path and
// its operations, sorted by their paths, without the resourceVersion that must guard it. Other writes are
// returned with their method, path and body.
func (s *Server) Patches(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range s.Requests() {
		var operations []json.RawMessage
		if r.Type != "application/json-patch+json" {
			all = append(all, r.Method+" "+r.Path+" "+r.Body)
			continue
		}

		if err := json.Unmarshal([]byte(r.Body), &operations); err != nil || len(operations) == 0 ||
			!strings.HasPrefix(string(operations[0]), `{"op":"replace","path":"/metadata/resourceVersion","value":`) {
			t.Errorf("a patch that is not guarded: %v", r)
			continue
		}

		slices.SortFunc(operations, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
		text := ""
		for _, operation := range operations {
			if !strings.Contains(string(operation), `"/metadata/resourceVersion"`) {
				text += " " + string(operation)
			}
		}

		all = append(all, r.Path+text)
	}
	return all
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
