package fakeapi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// Command is a function that creates a command. All packages of commands export one.
type Command func(cmdutil.Factory, genericiooptions.IOStreams) *cobra.Command

// config returns the configuration of a client of the server.
func (s *Server) config() *genericclioptions.ConfigFlags {
	s.t.Helper()
	dir := s.t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{"name":"test","cluster":{"server":%q}}],
"contexts":[{"name":"test","context":{"cluster":"test","namespace":%q}}]}`, s.http.URL, Namespace)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}

	config := genericclioptions.NewConfigFlags(true).
		WithWrapConfigFn(func(c *rest.Config) *rest.Config {
			c.QPS = -1 // no limit
			return c
		})

	config.KubeConfig = &kubeconfig
	return config
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

func (s *Server) factory(config *genericclioptions.ConfigFlags) cmdutil.Factory {
	if s.served == nil {
		client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.http.URL, QPS: -1})
		if err != nil {
			s.t.Fatal(err)
		}
		s.served = memory.NewMemCacheClient(client)
	}

	return cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(getter{config, s.served}))
}

// Factory returns a factory whose clients use the server.
func (s *Server) Factory() cmdutil.Factory {
	return s.factory(s.config())
}

// Run runs a command with kubectl's global flags, and returns its output on both streams. input is its
// standard input.
func (s *Server) Run(command Command, input string, args ...string) (out, errOut string, err error) {
	s.t.Helper()
	var outBuffer, errBuffer bytes.Buffer
	config := s.config()
	root := &cobra.Command{
		Use:           "afloat",
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl afloat"},
	}
	config.AddFlags(root.PersistentFlags())
	root.AddCommand(command(s.factory(config), genericiooptions.IOStreams{
		In:     strings.NewReader(input),
		Out:    &outBuffer,
		ErrOut: &errBuffer,
	}))
	root.SetArgs(args)
	root.SetOut(&outBuffer)
	root.SetErr(&errBuffer)

	type fatal struct{ message string }
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(fatal{message}) })
	defer cmdutil.DefaultBehaviorOnFatal()
	defer func() { // kubectl's own commands end the process on an error
		if r := recover(); r != nil {
			f, ok := r.(fatal)
			if !ok {
				panic(r)
			}
			out, errOut, err = outBuffer.String(), errBuffer.String(), fmt.Errorf("%s", f.message)
		}
	}()

	err = root.Execute()
	return outBuffer.String(), errBuffer.String(), err
}

// Play runs a command and returns a transcript for golden files: the command line, the output, the error, and
// the write requests.
func (s *Server) Play(command Command, args ...string) string {
	s.t.Helper()
	before := len(s.Requests())
	out, errOut, err := s.Run(command, "", args...)

	var text strings.Builder
	fmt.Fprintf(&text, "$ kubectl afloat %s\n%s", strings.Join(args, " "), out)
	for _, line := range strings.SplitAfter(errOut, "\n") {
		if line != "" {
			fmt.Fprintf(&text, "! %s", line)
		}
	}

	if err != nil {
		fmt.Fprintf(&text, "error: %s\n", strings.TrimPrefix(strings.TrimSpace(err.Error()), "error: "))
	}

	for _, request := range s.Requests()[before:] {
		fmt.Fprintf(&text, "> %s\n", request)
	}

	return text.String() + "\n"
}
