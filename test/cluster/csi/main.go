// Command csi is the storage driver of the local cluster. Its volumes have a size limit that is enforced, and
// can grow. One process serves the controller and all nodes, because they share a mount namespace.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// driverName is the name of the driver in StorageClasses, CSINodes and PersistentVolumes.
const driverName = "csi.afloat.dev"

func main() {
	dir := flag.String("dir", "", "folder of the volumes and of the sockets controller.sock and NODE.sock")
	var nodes []string
	flag.Func("node", "NODE=FOLDER: a node, and the folder that its kubelet was given as root-dir (repeat)",
		func(value string) error {
			nodes = append(nodes, value)
			return nil
		})
	flag.Parse()
	if err := serve(&volumes{dir: *dir, mounter: linux{}}, nodes); err != nil {
		log.Fatal(err)
	}
}

// serve runs all servers until one of them fails.
func serve(volumes *volumes, nodes []string) error {
	failed := make(chan error)
	start := func(socket string, server *grpc.Server) error {
		listener, err := listen(socket)
		if err == nil {
			go func() { failed <- server.Serve(listener) }()
		}
		return err
	}

	if err := start(filepath.Join(volumes.dir, "controller.sock"), newServer(volumes, "")); err != nil {
		return err
	}

	for _, value := range nodes {
		node, kubelet, _ := strings.Cut(value, "=")
		socket := filepath.Join(volumes.dir, node+".sock")
		if err := start(socket, newServer(volumes, node)); err != nil {
			return err
		}
		plugins := grpc.NewServer()
		registration.RegisterRegistrationServer(plugins, &registrar{endpoint: socket})
		if err := start(filepath.Join(kubelet, "plugins_registry", driverName+".sock"), plugins); err != nil {
			return err
		}
	}

	return <-failed
}

// listen listens on a socket. It first removes a socket that a former process has left behind.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// newServer returns a server for the controller and, if node is not empty, for a node.
func newServer(volumes *volumes, node string) *grpc.Server {
	server := grpc.NewServer(grpc.UnaryInterceptor(logFailures))
	csi.RegisterIdentityServer(server, identity{})
	csi.RegisterControllerServer(server, controller{volumes: volumes})
	if node != "" {
		csi.RegisterNodeServer(server, nodeServer{volumes: volumes, name: node})
	}
	return server
}

func logFailures(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s: %v", info.FullMethod, err)
	}
	return answer, err
}

// registrar registers the driver with a kubelet.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

// GetInfo returns the name and the socket of the driver.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus logs a failed registration. The kubelet tries again by itself.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, is *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if !is.PluginRegistered {
		log.Printf("the kubelet refuses %s: %s", r.endpoint, is.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
